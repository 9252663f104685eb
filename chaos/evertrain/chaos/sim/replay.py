"""Decide recorded steps again with this version's core, and tell where it decides differently. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evertrain.controlplane.core.ids import Instant
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import State
from evertrain.controlplane.core.step import step
from evertrain.controlplane.shell import recording
from evertrain.controlplane.shell.recording import Chapter, Progress, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A step that was decided otherwise. What follows it in its chapter is not compared: its state is another one."""

    where: str
    """File and step."""
    now: Instant
    events: tuple[str, ...]
    """Kinds of the facts that came in, and whom they are about."""
    recorded: tuple[str, ...]
    """The story's lines then."""
    today: tuple[str, ...]
    """The story's lines now; equal lines mean that only records or commands differ."""


@dataclass(slots=True)
class Tally:
    """How much was compared."""

    chapters: int = 0
    steps: int = 0
    skipped: int = 0
    """Steps after a difference, up to the next chapter."""


def replay(paths: Sequence[Path], tally: Tally, *, policy: Policy | None = None) -> Iterator[Difference]:
    """Compare every step of the recordings, oldest file first; ``policy`` replaces the recorded one.

    Raises RecordingError and RecordError.
    """
    for path in paths:
        state: State | None = None
        used = policy or Policy()
        for number, line in enumerate(recording.read(path), start=1):
            match line:
                case Chapter():
                    tally.chapters += 1
                    state, used = recording.state_of(line), policy or line.policy
                case Step() if state is None:
                    tally.skipped += 1
                case Step():
                    tally.steps += 1
                    decision = step(_advanced(state, line.progress), line.events, now=line.now, policy=used)
                    state = decision.state
                    if recording.digest_of(decision) != line.digest:
                        today = tuple(told.text for told in decision.told)
                        state = None
                        yield Difference(
                            where=f"{path}:{number}",
                            now=line.now,
                            events=tuple(_say(event) for event in line.events),
                            recorded=line.told,
                            today=today,
                        )


def _advanced(state: State, progress: Sequence[Progress]) -> State:
    seen = {
        each.node: replace(state.contact(each.node), launchers={status.job: status for status in each.launchers})
        for each in progress
    }
    return state.with_contacts(seen) if seen else state


def _say(event: object) -> str:
    about = next((str(getattr(event, name)) for name in ("node", "target", "job") if hasattr(event, name)), "")
    return f"{type(event).__name__} {about}".rstrip()
