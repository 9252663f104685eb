"""A cluster of real processes on loopback for a test: coordinators, agents, what they start. Leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from evertrain.api.mirror import to_message
from evertrain.api.transport import OPTIONS
from evertrain.api.v1 import job_pb2, operator_pb2, operator_pb2_grpc
from evertrain.chaos import processes
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange
from evertrain.ctl.local import processes as daemons
from evertrain.ctl.local import state

BIN = Path(sys.executable).parent
TINY = Path(__file__).parent / "jobs" / "tiny.py"
DEADLINE_S = 60.0
Job = operator_pb2.Job


@dataclass
class Cluster:
    """Started piece by piece; every wait has a deadline and fails with what was seen last."""

    store: str = ""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="et-", dir="/tmp")))
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    _channels: dict[str, grpc.Channel] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.store = self.store or f"embedded:{self.folder}/store.db"
        state.nodes_dir(self.folder).mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            channel.close()
        for process in self.daemons.values():
            process.kill()
            process.wait()
        for _ in range(5):
            left = state.belonging(self.folder)
            if not left:
                break
            daemons.end(left, grace_s=0.0, now=time.monotonic)
        assert not state.belonging(self.folder), "processes of the cluster are left"
        shutil.rmtree(self.folder)

    # -- processes ------------------------------------------------------------------

    def coordinator(self, name: str = "c1", *more: str, listen: str = "127.0.0.1:0") -> str:
        """Start one, with ``more`` options; its address."""
        port_file = self.folder / f"{name}.port"
        port_file.unlink(missing_ok=True)
        flags = ("--listen", listen, "--store", self.store, "--port-file", str(port_file), "--lease-s", "2")
        self._spawn(name, "evertrain-coordinator", *flags, *more)
        self.wait_until(port_file.exists, f"{name} listens")
        self.addresses[name] = port_file.read_text().strip()
        return self.addresses[name]

    def agent(self, name: str, *flags: str) -> None:
        """Start a node's agent, which knows all coordinators started so far."""
        known = ",".join(self.addresses.values())
        home = state.nodes_dir(self.folder) / name
        home.mkdir(exist_ok=True)
        own = ("--coordinator", known, "--node", name, "--state-dir", str(home), "--slots", "4", "--devices", "none")
        self._spawn(name, "evertrain-agent", *own, "--health", "off", *flags)

    def start(self, nodes: int) -> Self:
        """One coordinator and ``nodes`` agents, all met."""
        self.coordinator()
        names = [f"n{at}" for at in range(1, nodes + 1)]
        for name in names:
            self.agent(name)
        self.wait_nodes(*names)
        return self

    def _spawn(self, name: str, program: str, *flags: str) -> None:
        env = {**os.environ, state.MARK_ENV: str(self.folder), "OMP_NUM_THREADS": "1"}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.daemons[name] = subprocess.Popen(
                [str(BIN / program), *flags], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a daemon; after a SIGKILL wait for its end."""
        self.daemons[name].send_signal(number)
        if number == signal.SIGKILL:
            self.daemons[name].wait(DEADLINE_S)

    def kill_node(self, name: str) -> None:
        """SIGKILL to everything of a node at once."""
        inside = f"{state.nodes_dir(self.folder) / name}/"
        pids = [each.pid for each in processes.owned_by(inside)]
        processes.kill([self.daemons[name].pid, *pids])
        self.daemons[name].wait(DEADLINE_S)

    def worker(self, rank: int) -> int:
        """Pid of the process that runs ``rank``."""
        pid = processes.worker(str(self.folder), rank=rank)
        assert pid is not None, f"no process runs rank {rank}"
        return pid

    def kill_worker(self, rank: int) -> None:
        """SIGKILL to the process that runs ``rank``, if there is one: it may just have left by itself."""
        pid = processes.worker(str(self.folder), rank=rank)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def last_word(self, after: str) -> str:
        """What the newest line of any rank 0 that begins with ``after`` says next."""
        logs = sorted(self.folder.rglob("rank0.log"), key=lambda path: path.stat().st_mtime_ns)
        words = [line.split() for log in logs for line in log.read_text().splitlines() if line.startswith(f"{after} ")]
        assert words, f"no rank 0 wrote a line that begins with {after}"
        return words[-1][1]

    def launcher(self, node: str) -> int:
        """Pid of the launcher on a node."""
        inside = f"{state.nodes_dir(self.folder) / node}/"
        found = [each.pid for each in processes.owned_by(inside) if "evertrain.launcher" in each.argv]
        assert len(found) == 1, f"{len(found)} launchers on {node}"
        return found[0]

    def log(self, name: str) -> str:
        """What a daemon wrote."""
        return (self.folder / f"{name}.log").read_text()

    def wait_file(self, path: Path) -> None:
        """Wait until a file exists."""
        self.wait_until(path.exists, f"{path} exists")

    def wait_log(self, name: str, *words: str) -> None:
        """Wait until a daemon wrote one of ``words``."""
        self.wait_until(lambda: any(word in self.log(name) for word in words), f"{name} says {' or '.join(words)}")

    # -- operator -------------------------------------------------------------------

    def operator(self, coordinator: str = "") -> operator_pb2_grpc.OperatorServiceStub:
        """Calls to one coordinator; when not named, to the one that leads, or the newest while none does."""
        name = coordinator or self.leader() or list(self.addresses)[-1]
        return self._stub(name)

    def leader(self) -> str:
        """Name of the coordinator that leads; empty while none does."""
        for name in self.addresses if len(self.addresses) > 1 else ():
            try:
                if self._stub(name).GetVersion(operator_pb2.GetVersionRequest(), timeout=5).leads:
                    return name
            except grpc.RpcError:
                continue
        return ""

    def _stub(self, name: str) -> operator_pb2_grpc.OperatorServiceStub:
        if name not in self._channels:
            self._channels[name] = grpc.insecure_channel(self.addresses[name], options=OPTIONS)
        return operator_pb2_grpc.OperatorServiceStub(self._channels[name])

    def tiny(self, name: str = "tiny", **changes: object) -> JobSpec:
        """A job that trains a very small model with the trainer library: a step takes some 10 ms."""
        spec = JobSpec(
            name=name,
            script=str(TINY),
            args=("--out", str(self.folder / "run"), "--steps", "100000"),
            python=sys.executable,
            workdir=str(self.folder),
            preload=("evertrain.trainer.state",),
            nodes=NodeRange(min=2, max=4),
            nproc_per_node=1,
            checkpoint=CheckpointPolicy(dir=str(self.folder / "ckpt"), every_steps=20, keep=3),
            stop_grace_s=3.0,
        )
        return replace(spec, **changes)  # type: ignore[arg-type]

    def submit(self, spec: JobSpec) -> None:
        """Ask for a job."""
        request = operator_pb2.SubmitJobRequest(
            request_id=f"{spec.name}-{time.monotonic_ns()}", spec=to_message(spec, job_pb2.JobSpec), submitted_by="test"
        )
        self.operator().SubmitJob(request, timeout=10, wait_for_ready=True)

    def cancel(self, name: str) -> Job:
        """End a job and wait for that."""
        request = operator_pb2.CancelJobRequest(request_id=f"c-{time.monotonic_ns()}", name=name, by="test")
        self.operator().CancelJob(request, timeout=10)
        return self.wait_job(name, lambda job: job.state == operator_pb2.JOB_STATE_CANCELLED, "is cancelled")

    def jobs(self, name: str, deadline_s: float) -> Iterator[Job]:
        """A job's states as they come, over changes of the leader."""
        end = time.monotonic() + deadline_s
        while (left_s := end - time.monotonic()) > 0:
            try:
                for reply in self.operator().WatchJob(operator_pb2.WatchJobRequest(name=name), timeout=left_s):
                    yield reply.job
            except grpc.RpcError as err:
                code = err.code()
                if code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise

    def wait_job(self, name: str, fits: Callable[[Job], bool], what: str, deadline_s: float = DEADLINE_S) -> Job:
        """The first state of a job that fits."""
        last: Job | None = None
        for last in self.jobs(name, deadline_s):
            if fits(last):
                return last
        seen = (
            "nothing" if last is None else f"{operator_pb2.JobState.Name(last.state)}: {last.reason}, step {last.step}"
        )
        raise AssertionError(f"{name} {what}? Not within {deadline_s:.0f} s; seen last: {seen}\n{self.story(name)}")

    def wait_steps(self, name: str, count: int = 25) -> Job:
        """Wait until the job runs and has made ``count`` more steps in its present generation."""
        begun: dict[int, int] = {}

        def advanced(job: Job) -> bool:
            if job.state != operator_pb2.JOB_STATE_RUNNING or not job.step:
                return False
            return job.step >= begun.setdefault(job.generation, job.step) + count

        return self.wait_job(name, advanced, f"made {count} steps")

    def wait_generation(self, name: str, generation: int) -> Job:
        """Wait until a generation has completed its first step."""

        def stepped(job: Job) -> bool:
            return job.generation >= generation and bool(job.history[-1].first_step)

        return self.wait_job(name, stepped, f"stepped in generation {generation}")

    def wait_nodes(self, *names: str) -> None:
        """Wait until these nodes are healthy."""

        def healthy() -> bool:
            try:
                nodes = self.operator().ListNodes(operator_pb2.ListNodesRequest(), timeout=5, wait_for_ready=True).nodes
            except grpc.RpcError:
                return False
            return {n.name for n in nodes if n.health == operator_pb2.NODE_HEALTH_HEALTHY} >= set(names)

        self.wait_until(healthy, f"{', '.join(names)} registered")

    def wait_node(self, name: str, fits: Callable[[operator_pb2.Node], bool]) -> None:
        """Wait until a node, with all conditions of its health, is as it should be."""
        request = operator_pb2.GetNodeRequest(name=name)
        look = partial(self.operator().GetNode, request, timeout=5, wait_for_ready=True)
        self.wait_until(lambda: fits(look().node), f"{name} is as it should be")

    def events(self, coordinator: str = "") -> list[operator_pb2.Event]:
        """All that was told."""
        replies = self.operator(coordinator).WatchEvents(operator_pb2.WatchEventsRequest(), timeout=10)
        return [event for reply in replies for event in reply.events]

    def story(self, name: str) -> str:
        """What was told of a job and of nodes, as text."""
        try:
            return "\n".join(event.text for event in self.events() if event.job in {"", name})
        except grpc.RpcError as err:
            return f"(no story: {err})"

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        """For what no process tells of by itself: files and registrations. Bounded."""
        end = time.monotonic() + DEADLINE_S
        tick = signal.sigtimedwait  # a wait that needs no sleep: nobody sends us SIGUSR2
        while not done():
            for name, process in self.daemons.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}:\n{self.log(name)}"
            assert time.monotonic() < end, f"{what}? Not within {DEADLINE_S:.0f} s"
            tick([signal.SIGUSR2], 0.05)
