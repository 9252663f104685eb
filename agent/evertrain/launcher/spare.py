"""The warm spare: a process that has imported what the workers need and forks them when told.

Started by the launcher as ``python -c "..." SCRIPT_FOLDER`` in the job's
environment, with the launcher's socket as descriptor 3. It runs one thread,
initialises no device, and never runs the job's script itself: a child does.
For a ``command:`` job it imports nothing and its children exec.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from evertrain.contract.launch import LaunchFile
from evertrain.contract.wire import Decoder, encode
from evertrain.launcher import processes, worker
from evertrain.launcher.elastic import forking_agent
from evertrain.launcher.folder import Folder
from evertrain.launcher.keeper import keep_stores
from evertrain.launcher.messages import (
    Forked,
    ForkFailed,
    ForkKeeper,
    ForkWorkers,
    Importing,
    SpareWord,
    Unusable,
    Warm,
)
from evertrain.launcher.seats import Seat, seats_of, worker_environ

CONTROL: Final = 3
START: Final = "from evertrain.launcher.spare import main; main()"
RECEIVE_BYTES: Final = 1 << 16
DESCRIPTORS_MAX: Final = 253
"""What the kernel passes in one message."""
NVML_CHECK: Final = "PYTORCH_NVML_BASED_CUDA_CHECK"
_PID: Final = struct.Struct("=i")


class Become(BaseException):
    """Raised in a forked process to leave the spare's stack behind. Not an error."""

    def __init__(self, index: int) -> None:
        self.index = index


class WarmUpFailed(Exception):
    """Something the workers need cannot be imported; the text names it."""


def main() -> None:
    """Warm up, then fork on request. Returns in a worker, after its script, and in no other process."""
    folder, launcher = Folder(Path(sys.argv[1])), int(sys.argv[2])
    processes.die_with(launcher)
    control = socket.socket(fileno=CONTROL)
    control.set_inheritable(False)
    launch = folder.read_launch()
    Spare(control, folder, launch, launcher).live()


class Spare:
    """One spare process, and in its forked children the way out of it."""

    def __init__(self, control: socket.socket, folder: Folder, launch: LaunchFile, launcher: int) -> None:
        self._control, self._folder, self._launch, self._launcher = control, folder, launch, launcher
        self._descriptors: list[int] = []

    def live(self) -> None:
        """Serve until the launcher hangs up. Comes back only in a worker, when its script is done."""
        started = time.monotonic()
        try:
            _go_home(self._launch)
            if self._launch.spec.script:
                warm_up(self._launch.spec.preload, lambda module: self._tell(Importing(module=module)))
        except WarmUpFailed as err:
            self._tell(Unusable(error=str(err)))
            os._exit(1)
        # What is imported stays for ever; collections in the workers must not touch, and so copy, its pages.
        gc.collect()
        gc.freeze()
        self._tell(Warm(threads=len(os.listdir("/proc/self/task")), took_s=time.monotonic() - started))
        become = self._serve()
        become()

    def _tell(self, word: SpareWord) -> None:
        self._control.sendall(encode(word))

    def _serve(self) -> Callable[[], None]:
        """Fork on request. Returns in a forked process, with what it is to do; the spare itself never returns."""
        decoder = Decoder(ForkWorkers, ForkKeeper)
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._control, RECEIVE_BYTES, DESCRIPTORS_MAX)
            self._descriptors += descriptors
            if not data:
                os._exit(0)  # no exit handlers: those that imports have registered are the workers'
            for request in decoder.feed(data):
                passed, self._descriptors = self._descriptors, []
                become = self._fork(request, passed)
                if become is not None:
                    return become
                for descriptor in passed:
                    os.close(descriptor)

    def _fork(self, request: ForkWorkers | ForkKeeper, passed: list[int]) -> Callable[[], None] | None:
        """None in the spare; in a forked process what it is to do."""
        seats: Sequence[Seat] = ()

        def start(given: Sequence[Seat]) -> Sequence[int]:
            nonlocal seats
            seats = given
            return fork_children(len(given))

        try:
            if isinstance(request, ForkKeeper):
                pids = fork_children(1)
            elif self._launch.spec.script:
                result = forking_agent(self._launch, request.place, start).run()
                pids = list(result.return_values.values())
            else:
                pids = start(seats_of(request.place, self._launch.spec.nproc_per_node))
        except OSError as err:
            self._tell(ForkFailed(error=f"cannot fork: {err.strerror}"))
            return None
        except Become as become:
            index = become.index
        else:
            self._tell(Forked(pids=tuple(pids)))
            return None
        self._control.close()
        for other, descriptor in enumerate(passed):
            if other != index:
                os.close(descriptor)
        if isinstance(request, ForkKeeper):
            return lambda: self._keeper(passed[index])
        return lambda: self._worker(request, seats[index], passed[index])

    def _keeper(self, control: int) -> None:
        try:
            processes.await_adoption(self._launcher)
            processes.die_with(self._launcher)
        except processes.NotAdopted:
            os._exit(1)
        keep_stores(socket.socket(fileno=control))
        os._exit(0)

    def _worker(self, request: ForkWorkers, seat: Seat, output: int) -> None:
        spec = self._launch.spec
        try:
            worker.detach(output, self._launcher)
        except processes.NotAdopted:
            os._exit(1)
        environment = worker_environ(
            self._launch,
            seat,
            generation=request.generation,
            place=request.place,
            error_file=str(self._folder.error_file(request.generation, seat.rank)),
            agent_store=bool(spec.script),
        )
        if spec.command:
            worker.run_command(spec.command, environment)
        worker.run_script(spec.script, spec.args, environment)


def _go_home(launch: LaunchFile) -> None:
    """Enter the job's working directory, and put the script's folder where ``python script.py`` puts it."""
    spec = launch.spec
    if spec.workdir:
        try:
            os.chdir(spec.workdir)
        except OSError as err:
            raise WarmUpFailed(f"cannot enter {spec.workdir}: {err.strerror}; see workdir: of the job") from err
    if not sys.flags.safe_path:
        home = os.path.dirname(os.path.realpath(spec.script)) if spec.script else os.getcwd()
        sys.path[0] = home


def warm_up(preload: Sequence[str], tell: Callable[[str], None]) -> None:
    """Import all that a worker would, and what torch itself puts off to the first optimizer. Raises WarmUpFailed."""
    # Counting devices through NVML does not initialise CUDA, which no forked process could use afterwards.
    borrowed = NVML_CHECK not in os.environ
    os.environ.setdefault(NVML_CHECK, "1")
    tell("torch")
    try:
        import torch
        import torch.distributed.elastic.agent.server.api
        import torch.distributed.elastic.multiprocessing.errors
        from torch.nn.parallel import DistributedDataParallel  # noqa: F401 - imported so that workers need not
    except ImportError as err:
        raise WarmUpFailed(
            f"{sys.executable} cannot import torch: {err}. Name an interpreter that has torch as the job's python:"
        ) from err
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.AdamW([parameter]).step()
    for module in preload:
        tell(module)
        try:
            importlib.import_module(module)
        except BaseException as err:
            raise WarmUpFailed(
                f"cannot preload {module}: {type(err).__name__}: {err}. Repair it or take it out of preload:"
            ) from err
    if borrowed:
        del os.environ[NVML_CHECK]
    if torch.cuda.is_initialized():
        raise WarmUpFailed(
            "a preloaded module has initialised CUDA, which a forked worker cannot use. Take it out of preload:"
        )


def fork_children(count: int) -> list[int]:
    """Fork ``count`` processes that become children of the launcher, by way of a process that ends at once.

    Returns their pids when they have changed over. Raises :class:`Become` in each of them, and OSError
    in the caller when they could not all be forked; then none lives.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    incoming, outgoing = os.pipe()
    between = _fork_quietly()
    if between == 0:
        os.close(incoming)
        _fork_and_leave(count, outgoing)
    os.close(outgoing)
    with os.fdopen(incoming, "rb") as stream:
        data = stream.read(count * _PID.size)
    os.waitpid(between, 0)
    if len(data) < count * _PID.size:
        raise OSError(0, f"only some of {count} processes could be forked; memory or processes are short here")
    return [pid for (pid,) in _PID.iter_unpack(data)]


def _fork_and_leave(count: int, outgoing: int) -> None:
    """In the process between: fork the children, tell their pids, end. Never returns but in the children."""
    pids: list[int] = []
    try:
        for index in range(count):
            pid = _fork_quietly()
            if pid == 0:
                os.close(outgoing)
                raise Become(index)
            pids.append(pid)
        os.write(outgoing, b"".join(map(_PID.pack, pids)))
        os._exit(0)
    except OSError:
        for pid in pids:
            processes.signal_process(pid, 9)
        os._exit(1)


def _fork_quietly() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of threads that imports have started; they are reported when the spare is warm.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
