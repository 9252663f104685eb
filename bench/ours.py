"""Evertrain on this machine: one coordinator with the embedded store, an agent for each node, the job by ctl."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench import machine
from bench.steps import NoProgress, StepLog
from bench.subject import ROOT, SCRIPT, Layout, environment, script_arguments

BIN = Path(sys.executable).parent
"""Where the commands of the environment that runs this are."""
READY_TIMEOUT_S = 30.0
CTL_TIMEOUT_S = 60.0
POLL_S = 0.02


class Evertrain:
    """A local cluster of real processes. With ``elastic`` the job may shrink by a node."""

    def __init__(self, layout: Layout, *, mark: str, elastic: bool) -> None:
        self._layout = layout
        self._mark = mark
        self._elastic = elastic
        self._processes: list[subprocess.Popen[bytes]] = []
        self._address = ""
        self._steps = StepLog(layout.folder, "node*/jobs/*/logs/rank*.log")

    @property
    def steps(self) -> StepLog:
        """Every step that a rank reported."""
        return self._steps

    def start(self) -> None:
        """Start coordinator and agents, then submit the job."""
        folder = self._layout.folder
        port_file = folder / "coordinator.address"
        store = f"embedded:{folder / 'store.db'}"
        self._spawn("evertrain-coordinator", "--listen", "127.0.0.1:0", "--store", store, "--port-file", str(port_file))
        self._address = _wait_for_text(port_file)
        for node in range(self._layout.nodes):
            options = ("--coordinator", self._address, "--node", f"node{node}", "--address", "127.0.0.1")
            # One machine stands for all nodes: its health would be watched once for each.
            more = ("--slots", str(self._layout.workers_per_node), "--health", "off")
            self._spawn("evertrain-agent", *options, *more, "--state-dir", str(folder / f"node{node}"))
        self._submit()

    def _spawn(self, program: str, *arguments: str) -> None:
        log = self._layout.folder / f"{program}-{len(self._processes)}.log"
        with log.open("wb") as file:
            self._processes.append(
                subprocess.Popen(
                    [str(BIN / program), *arguments],
                    cwd=self._layout.folder,
                    env=environment(self._mark),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _submit(self) -> None:
        nodes = self._layout.nodes
        spec = {
            "name": "bench",
            "script": str(SCRIPT),
            "args": list(script_arguments(self._layout.folder / "checkpoint.pt")),
            "workdir": str(ROOT),
            "env": {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            "nodes": {"min": nodes - 1 if self._elastic else nodes, "max": nodes},
            "nproc_per_node": self._layout.workers_per_node,
            "retry": {"max_failures": 1000, "max_without_progress": 1000},
        }
        # JSON is YAML.
        file = self._layout.folder / "job.yaml"
        file.write_text(json.dumps(spec, indent=1))
        command = [str(BIN / "ctl"), "--coordinator", self._address, "submit", str(file)]
        done = subprocess.run(
            command, env=environment(self._mark), capture_output=True, text=True, timeout=CTL_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise NoProgress(f"ctl submit failed with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")

    def node_processes(self, node: int) -> list[int]:
        """The node's launcher, spare and workers, and its agent last.

        A host is lost at once. Signals go out one by one, and an agent that was
        killed first could be noticed while its launcher still answers.
        """
        identities = (self._layout.folder / f"node{node}").glob("jobs/*/launcher.json")
        roots = [*(json.loads(path.read_text())["pid"] for path in identities), self._processes[1 + node].pid]
        victims = dict.fromkeys(pid for root in roots for pid in machine.descendants(root))
        return [*(pid for pid in victims if pid != roots[-1]), roots[-1]]

    def stop(self) -> None:
        """End everything at once; the benchmark has what it wanted."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()
        self._steps.close()
        machine.end_marked(str(self._layout.folder))

    def conditions(self) -> Mapping[str, str]:
        """How Evertrain was set up."""
        return {"evertrain": "one coordinator, embedded store, defaults"}


def _wait_for_text(path: Path) -> str:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text().strip()):
            return text
        time.sleep(POLL_S)
    raise NoProgress(f"{path} was not written within {READY_TIMEOUT_S:.0f} s; see the log beside it")
