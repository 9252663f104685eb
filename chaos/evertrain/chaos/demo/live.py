"""The demo's screen: job, nodes, faults and recoveries as they happen. Plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evertrain.api.v1 import job_pb2, operator_pb2

COLOURS = {"running": "green", "recovering": "yellow", "resizing": "cyan", "failed": "red", "succeeded": "green"}
LINES_MAX = 10


def word(enum_name: str, prefix: str) -> str:
    """The word of an enum value for people."""
    return enum_name.removeprefix(prefix).lower()


def state_of(job: operator_pb2.Job) -> str:
    """The job's state as a word."""
    return word(operator_pb2.JobState.Name(job.state), "JOB_STATE_")


class Screen:
    """Shows the newest of everything; keeps the last lines of what happened."""

    def __init__(self, console: Console, *, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._job: operator_pb2.Job | None = None
        self._nodes: Sequence[operator_pb2.Node] = ()
        self._lines: list[Text] = []
        self._began = time.monotonic()
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._draw)
        self._said_step = -100

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """One more line of what happens."""
        line = Text(f"{time.monotonic() - self._began:6.1f} s  {text}", style=style)
        self._lines = [*self._lines, line][-LINES_MAX:]
        if not self._console.is_terminal:
            self._console.print(line, highlight=False)

    def show(self, job: operator_pb2.Job, nodes: Sequence[operator_pb2.Node]) -> None:
        """The newest state."""
        self._job, self._nodes = job, nodes
        if not self._console.is_terminal and job.step >= self._said_step + 50:
            self._said_step = job.step
            self.say(_progress_line(job, self._steps))

    def _draw(self) -> Group:
        parts: list[Table | Text] = []
        if self._job is not None:
            state = state_of(self._job)
            parts.append(Text(_progress_line(self._job, self._steps), style=COLOURS.get(state, "")))
            bar = Table.grid()  # a bar alone ends without a line feed
            bar.add_row(ProgressBar(total=self._steps, completed=self._job.step, width=76))
            parts.append(bar)
            parts.append(Text(f"{state}: {self._job.reason}"[:200], style="dim"))
            parts.append(self._node_table(self._job))
        return Group(*parts, *self._lines)

    def _node_table(self, job: operator_pb2.Job) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("NODE", "HEALTH", "RANK", "WORKERS", "STEP"):
            table.add_column(name, min_width=9)
        members = {member.node: member for member in job.members}
        for node in self._nodes:
            member = members.get(node.name)
            health = word(operator_pb2.NodeHealth.Name(node.health), "NODE_HEALTH_")
            style = "" if health == "healthy" else "yellow"
            if member is None:
                table.add_row(
                    node.name, health, "-", "warming up" if node.job and job.world_size else "-", "-", style=style
                )
            else:
                group = word(job_pb2.GroupState.Name(member.group), "GROUP_STATE_")
                table.add_row(node.name, health, str(member.rank_first), group, str(member.step), style=style)
        return table


def _progress_line(job: operator_pb2.Job, steps: int) -> str:
    loss = f"loss {job.loss:.3f}" if job.HasField("loss") else "loss -"
    return f"step {job.step:4d}/{steps}  {loss}  world size {job.world_size}  generation {job.generation}"
