"""Limits of the launcher, each with a name. Not for what the job's specification says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherPolicy:
    """How long and how much."""

    idle_s: float = 1800.0
    """A launcher without workers and without an agent ends after so long."""
    status_gap_s: float = 0.02
    """Between two statuses, except for edges, which go at once."""
    progress_gap_s: float = 0.2
    """Between two looks at the workers' progress slots, and two statuses of which only the progress is new."""
    broken_grace_s: float = 2.0
    """At most so long between SIGTERM and SIGKILL for survivors in a broken collective: there is nothing to save."""
    stopped_gap_s: float = 0.2
    """Between two looks whether a worker's process is stopped (SIGSTOP)."""
    stopped_looks: int = 9
    """A worker that so many looks in a row found stopped is killed: that is noticed within 2 s."""
    fork_deadline_s: float = 20.0
    """For the spare to fork all workers, and for a store to open."""
    gone_report_s: float = 30.0
    """A killed process that is not gone after so long is told in the log (it hangs in the kernel)."""
    recruit_gap_s: float = 2.0
    """After workers took their seats, before the next ones are forked ahead."""
    spare_gap_first_s: float = 0.1
    """Before a dead spare is started again; doubles with each death in a row."""
    spare_gap_max_s: float = 30.0
    spare_deaths_max: int = 3
    """Deaths in a row, before it was ever warm, after which the launcher counts as broken."""
    agents_max: int = 8
    """Connections at the agent's door."""
    workers_max: int = 1024
    """Connections at the workers' door."""
    unsent_bytes_max: int = 1 << 20
    """Above this an agent that does not read gets no new status until it does."""
    message_chars_max: int = 500
    """Of what a failed worker said."""
