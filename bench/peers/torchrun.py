"""Plain torchrun: one launcher for each node, c10d rendezvous, no outer scheduler."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Mapping

from bench import machine
from bench.steps import StepLog
from bench.subject import SCRIPT, Layout, environment, script_arguments

OPT_OUT = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Without it the agents' store is shared with the workers and keeps the previous attempt's keys: with torch 2.13
and gloo every restart then fails (pytorch issue 135712)."""
RESTARTS_MAX = 100


class Torchrun:
    """A job under torchrun. With ``elastic`` it may shrink, with the shortest waits that don't split the job."""

    def __init__(self, layout: Layout, *, mark: str, elastic: bool) -> None:
        self._layout = layout
        self._mark = mark
        self._elastic = elastic
        self._launchers: list[subprocess.Popen[bytes]] = []
        self._steps = StepLog(layout.folder, "node*/**/stdout.log")

    @property
    def steps(self) -> StepLog:
        """Every step that a rank reported."""
        return self._steps

    def start(self) -> None:
        """Start one launcher for each node; node 0 holds the rendezvous store."""
        port = _free_port()
        for node in range(self._layout.nodes):
            folder = self._layout.folder / f"node{node}"
            folder.mkdir(parents=True)
            with (folder / "launcher.log").open("wb") as log:
                self._launchers.append(
                    subprocess.Popen(
                        [
                            *self._command(node, port),
                            str(SCRIPT),
                            *script_arguments(self._layout.folder / "checkpoint.pt"),
                        ],
                        env=environment(self._mark, **{OPT_OUT: "1"}),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )

    def _command(self, node: int, port: int) -> list[str]:
        nodes = self._layout.nodes
        rendezvous = {"is_host": str(int(node == 0))} | (self._waits() if self._elastic else {})
        return [
            *(sys.executable, "-m", "torch.distributed.run"),
            f"--nnodes={nodes - 1}:{nodes}" if self._elastic else f"--nnodes={nodes}",
            f"--nproc-per-node={self._layout.workers_per_node}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{port}",
            "--rdzv-id=bench",
            "--rdzv-conf=" + ",".join(f"{name}={value}" for name, value in rendezvous.items()),
            "--local-addr=127.0.0.1",
            f"--max-restarts={RESTARTS_MAX}",
            f"--log-dir={self._layout.folder / f'node{node}'}",
            "--redirects=3",
        ]

    def _waits(self) -> dict[str, str]:
        return {"keep_alive_interval": "1", "keep_alive_max_attempt": "3", "last_call_timeout": "3"}

    def node_processes(self, node: int) -> list[int]:
        """The node's launcher and its workers. Node 0 holds the store: losing it ends the whole job."""
        return machine.descendants(self._launchers[node].pid)

    def stop(self) -> None:
        """End launchers and workers."""
        for launcher in self._launchers:
            machine.send(signal.SIGKILL, machine.descendants(launcher.pid))
            launcher.wait()
        self._launchers.clear()
        self._steps.close()

    def conditions(self) -> Mapping[str, str]:
        """How torchrun was set up."""
        waits = ",".join(f"{name}={value}" for name, value in self._waits().items()) if self._elastic else "default"
        return {"torchrun": f"c10d, {OPT_OUT}=1, rdzv-conf {waits}, max-restarts {RESTARTS_MAX}"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
