"""The warm spare: a process that has imported what the workers need, and forks them.

Started by the launcher in the job's environment, with a socket to it as
descriptor 3. It runs one thread, initialises no device, and never runs the
job's script itself. A forked process becomes a child of the launcher, waits on
a socket of its own for its seat in the gang, and then runs the script; so the
fork is over before anybody waits for it. For a ``command:`` job nothing is
imported and the forked process execs.
"""

from __future__ import annotations

import gc
import importlib.util
import io
import os
import socket
import struct
import sys
import time
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from evertrain.contract.launch import LaunchFile
from evertrain.contract.wire import Decoder, encode
from evertrain.launcher import processes, worker
from evertrain.launcher.elastic import placed_agent, seat_in
from evertrain.launcher.folder import Folder
from evertrain.launcher.keeper import keep_stores
from evertrain.launcher.messages import Fork, Forked, ForkFailed, Importing, SpareWord, TakeSeat, Unusable, Warm
from evertrain.launcher.seats import Seat, seat_at, worker_environ

CONTROL: Final = 3
START: Final = "from evertrain.launcher.spare import main; main()"
RECEIVE_BYTES: Final = 1 << 16
DESCRIPTORS_MAX: Final = 253
"""What the kernel passes in one message."""
BESIDES: Final = ("evertrain.trainer",)
"""Preloaded when it is there, whether the job names it or not."""
DEVICES: Final = Path("/dev")
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
    parent, _, root = sys.argv[1].partition(":")
    folder, launcher = Folder(Path(root)), int(parent)
    processes.die_with(launcher)
    control = socket.socket(fileno=CONTROL)
    control.set_inheritable(False)
    launch = folder.read_launch()
    Spare(control, folder, launch, launcher).live()


class Spare:
    """The spare process, and in its forked children the way out of it."""

    def __init__(self, control: socket.socket, folder: Folder, launch: LaunchFile, launcher: int) -> None:
        self._control, self._folder, self._launch, self._launcher = control, folder, launch, launcher

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
        request, line = self._serve()
        self._control.close()
        try:
            os.setsid()
            processes.await_adoption(self._launcher)
            processes.die_with(self._launcher)
        except processes.NotAdopted:
            os._exit(1)
        if request.keeper:
            keep_stores(line)
            os._exit(0)
        self._work(line)

    def _tell(self, word: SpareWord) -> None:
        self._control.sendall(encode(word))

    def _serve(self) -> tuple[Fork, socket.socket]:
        """Fork on request. Returns in a forked process, with its line to the launcher, and never in the spare."""
        decoder, passed = Decoder(Fork), list[int]()
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._control, RECEIVE_BYTES, DESCRIPTORS_MAX)
            passed += descriptors
            if not data:
                os._exit(0)  # no exit handlers: those that imports have registered are the workers'
            for request in decoder.feed(data):
                try:
                    self._tell(Forked(pids=tuple(fork_children(len(passed)))))
                except OSError as err:
                    self._tell(ForkFailed(error=f"cannot fork: {err.strerror}"))
                except Become as become:
                    own = passed.pop(become.index)
                    for descriptor in passed:
                        os.close(descriptor)
                    return request, socket.socket(fileno=own)
                for descriptor in passed:
                    os.close(descriptor)
                passed.clear()

    def _work(self, line: socket.socket) -> None:
        """Wait for a seat, be that worker."""
        decoder, passed = Decoder(TakeSeat), list[int]()
        orders: list[TakeSeat] = []
        while not orders:
            data, descriptors, _, _ = socket.recv_fds(line, RECEIVE_BYTES, 1)
            if not data:
                os._exit(0)
            passed += descriptors
            orders += decoder.feed(data)
        line.close()
        (order,), (output,), spec = orders, passed, self._launch.spec
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        seat = self._seat(order)
        environment = worker_environ(
            self._launch,
            seat,
            generation=order.generation,
            place=order.place,
            error_file=str(self._folder.error_file(order.generation, seat.rank)),
            agent_store=bool(spec.script),
        )
        # What ps and top show; the command line stays the spare's.
        Path("/proc/self/comm").write_text(f"rank{seat.rank}-g{order.generation}")
        if spec.command:
            worker.run_command(spec.command, environment)
        worker.run_script(spec.script, spec.args, environment)

    def _seat(self, order: TakeSeat) -> Seat:
        if self._launch.spec.command:  # there may be no torch
            return seat_at(order.place, order.local_rank, nproc=self._launch.spec.nproc_per_node)
        agent = placed_agent(self._launch, order.place)
        agent.run()
        return seat_in(agent.get_worker_group(), order.local_rank, restart_count=order.place.restart_count)


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

        _use_once(torch)
    except Exception as err:  # of many kinds: a missing library is an OSError, a broken one anything
        raise WarmUpFailed(
            f"{sys.executable} cannot use torch: {type(err).__name__}: {err}. "
            "Name an interpreter that has torch as the job's python:"
        ) from err
    own = [name for name in BESIDES if importlib.util.find_spec(name)]
    for module in (*own, *preload):
        tell(module)
        try:
            importlib.import_module(module)
        except BaseException as err:
            raise WarmUpFailed(
                f"cannot preload {module}: {type(err).__name__}: {err}. Repair it or take it out of preload:"
            ) from err
    if borrowed:
        del os.environ[NVML_CHECK]
    if _forks_lack_cuda(torch):
        raise WarmUpFailed(
            "a preloaded module has initialised CUDA, which a forked worker cannot use. Take it out of preload:"
        )


def _use_once(torch: types.ModuleType) -> None:
    """What torch imports only when it is used: torch._dynamo with the first optimizer, serialization with a save."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.AdamW([parameter]).step()
    saved = io.BytesIO()
    torch.save(parameter.detach(), saved)
    saved.seek(0)
    torch.load(saved, weights_only=True)


def _forks_lack_cuda(torch: types.ModuleType) -> bool:
    """Whether something has touched CUDA in this process. Only a forked one can tell.

    Without a device there is nothing to lack. There torch itself asks CUDA's
    runtime (from 2.14 on in each optimizer step), since NVML cannot answer.
    """
    if not any(DEVICES.glob("nvidia[0-9]*")) and not (DEVICES / "kfd").exists():
        return False
    child = _fork_quietly()
    if child == 0:
        os._exit(bool(torch.cuda._is_in_bad_fork()))
    return os.waitpid(child, 0)[1] != 0


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
