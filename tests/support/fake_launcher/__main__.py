"""Speaks the launcher's contract; its workers only wait for a signal.

The job's environment steers it: ``FAKE_EXIT=CODE`` ends before it listens,
``FAKE_HANGS_UP=1`` closes each connection at once, ``FAKE_SAYS=HEX`` begins each
connection with these bytes, ``FAKE_STUBBORN=1`` does not obey STOP.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import sys
from dataclasses import replace
from pathlib import Path

from evertrain.contract.launch import (
    Desired,
    GangOrder,
    GroupState,
    LauncherIdentity,
    LauncherState,
    LauncherStatus,
    LaunchFile,
    ProcessExit,
)
from evertrain.contract.wire import Decoder, encode, from_dict, to_dict


class FakeLauncher:
    """All that is true of it is in ``status``; each change goes to every connection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launch = from_dict(LaunchFile, json.loads((folder / "launch.json").read_text()))
        self.workers: dict[int, int] = {}  # rank of each pid
        self.doors: set[asyncio.StreamWriter] = set()
        self.seen = (0, 0)
        self.ended = asyncio.Event()
        self.status = LauncherStatus(
            job=self.launch.job_id,
            launcher_id=secrets.token_hex(8),
            pid=os.getpid(),
            term=0,
            state=LauncherState.READY,
            master_port=1,
        )

    async def run(self) -> None:
        """Listen, say so, and serve until STOP."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)
        prober = await asyncio.start_server(self.answer_probe, "127.0.0.1", 0)
        self.status = replace(self.status, probe_port=prober.sockets[0].getsockname()[1])
        await asyncio.start_unix_server(self.serve, self.folder / "launcher.sock")
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        identity = LauncherIdentity(launcher_id=self.status.launcher_id, pid=os.getpid(), start_ticks=ticks)
        fresh = self.folder / "launcher.json.new"
        fresh.write_text(json.dumps(to_dict(identity)))
        fresh.replace(self.folder / "launcher.json")
        print("listening, started with", sorted(os.environ), flush=True)
        await self.ended.wait()

    def tell(self, **changes: object) -> None:
        """Change the status and tell every connection."""
        self.status = replace(self.status, **changes)  # type: ignore[arg-type] # names of fields
        for door in self.doors:
            door.write(encode(self.status))

    async def answer_probe(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Who we are, in a line."""
        writer.write(self.status.launcher_id.encode() + b"\n")
        writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One agent."""
        if "FAKE_HANGS_UP" in self.launch.spec.env:
            writer.close()
            return
        self.doors.add(writer)
        writer.write(bytes.fromhex(self.launch.spec.env.get("FAKE_SAYS", "")))
        writer.write(encode(self.status))
        decoder = Decoder(GangOrder)
        while data := await reader.read(65536):
            for order in decoder.feed(data):
                self.obey(order)
        self.doors.discard(writer)
        writer.close()

    def obey(self, order: GangOrder) -> None:
        """What is ordered, unless it is old."""
        if (order.term, order.generation) < self.seen:
            return
        self.seen = (order.term, order.generation)
        match order.desired:
            case Desired.PREPARE:
                self.tell(term=order.term)
            case Desired.RUN if order.generation == self.status.generation:
                self.tell(term=order.term)
            case Desired.RUN:
                self.end_workers()
                assert order.place is not None
                first = order.place.rank_first
                for rank in range(first, first + self.launch.spec.nproc_per_node):
                    self.workers[self.fork()] = rank
                (self.folder / "workers").write_text(json.dumps(list(self.workers)))
                self.tell(term=order.term, generation=order.generation, group=GroupState.RUNNING, exits=())
            case Desired.STOP if "FAKE_STUBBORN" not in self.launch.spec.env:
                self.end_workers()
                self.tell(term=order.term, group=GroupState.STOPPED)
                self.ended.set()
            case Desired.STOP:
                print("not stopping", flush=True)

    def fork(self) -> int:
        """A worker that waits for a signal and touches nothing of ours."""
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            os.closerange(3, 256)
            while True:
                signal.pause()
        return pid

    def end_workers(self) -> None:
        """Kill and reap all workers."""
        workers, self.workers = self.workers, {}
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def reap(self) -> None:
        """A worker ended by itself: the group failed."""
        for pid, rank in list(self.workers.items()):
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                del self.workers[pid]
                self.end_workers()
                failed = ProcessExit(rank=rank, local_rank=0, pid=pid, code=-signal.SIGKILL)
                self.tell(group=GroupState.FAILED, exits=(failed,))
                return


def main() -> None:
    """Entry point, with the real launcher's options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    launcher = FakeLauncher(parser.parse_args().dir)
    if code := launcher.launch.spec.env.get("FAKE_EXIT"):
        print("exiting as asked", flush=True)
        sys.exit(int(code))
    asyncio.run(launcher.run())


if __name__ == "__main__":
    main()
