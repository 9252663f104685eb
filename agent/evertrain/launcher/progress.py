"""What the workers of one generation tell of themselves, put together. Pure: instants come in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, assert_never

from evertrain.contract.beacon import (
    NOTE_CHARS_MAX,
    CheckpointCommitted,
    CheckpointFailed,
    CheckpointRefused,
    CheckpointWriting,
    Hello,
    Noted,
    Phase,
    PhaseChanged,
    Progress,
    Restored,
    Trail,
    WorkerReport,
)
from evertrain.contract.launch import CheckpointNotice, GangPlace, RunNote, StartPhases, TrailNotice

NOTICES_MAX: Final = 16
NOTES_MAX: Final = 8
TRAILS_MAX: Final = 4


@dataclass(slots=True, kw_only=True)
class _Told:
    """The latest words of one rank."""

    phase: Phase | None = None
    step: int | None = None
    stepped: bool = False
    restored: Restored | None = None
    loss: float | None = None
    tokens: int | None = None

    def reach(self, step: int) -> bool:
        """Whether ``step`` is news. Socket and slot are read apart, so an earlier word can be heard later."""
        if self.step is not None and step < self.step:
            return False
        self.step = step
        return True


class GangProgress:
    """One generation's progress on this node."""

    def __init__(self, *, generation: int, place: GangPlace, nproc: int, elapsed_s: Callable[[], float]) -> None:
        self.generation, self.place = generation, place
        self._ranks = range(place.rank_first, place.rank_first + nproc)
        self._elapsed_s = elapsed_s
        self._told: dict[int, _Told] = {}
        self.phases = StartPhases()
        self.notes: tuple[RunNote, ...] = ()

    def admits(self, hello: Hello) -> bool:
        """Whether ``hello`` is of this generation and of one of its ranks here."""
        return hello.generation == self.generation and hello.rank in self._ranks

    @property
    def attached(self) -> bool:
        """A worker uses the trainer library."""
        return bool(self._told)

    @property
    def step(self) -> int:
        """Fewest steps that a rank reported."""
        return min((told.step for told in self._told.values() if told.step is not None), default=0)

    @property
    def loss(self) -> float | None:
        """Of the lowest rank that told one."""
        return next((told.loss for _, told in sorted(self._told.items()) if told.loss is not None), None)

    @property
    def tokens(self) -> int | None:
        """Of the lowest rank that told them."""
        return next((told.tokens for _, told in sorted(self._told.items()) if told.tokens is not None), None)

    @property
    def phase(self) -> str:
        """Of the lowest rank that told one."""
        return next((told.phase.value for _, told in sorted(self._told.items()) if told.phase is not None), "")

    @property
    def restored(self) -> Restored | None:
        """What the lowest rank was restored from, if anything."""
        return next((told.restored for _, told in sorted(self._told.items()) if told.restored is not None), None)

    @property
    def milestones(self) -> tuple[bool, str, StartPhases, int]:
        """What is told sooner than a mere step, when it changes."""
        return self.attached, self.phase, self.phases, len(self.notes)

    def mark(self, *, stopped: bool = False, forked: bool = False) -> None:
        """A part of the start is over now."""
        now_s = self._elapsed_s()
        if stopped:
            self.phases = replace(self.phases, stopped_s=now_s)
        if forked:
            self.phases = replace(self.phases, forked_s=now_s)

    def take(self, rank: int, report: WorkerReport) -> CheckpointNotice | TrailNotice | None:
        """Note what ``rank`` says; the notice that the coordinator must get of it, if any."""
        told = self._told.setdefault(rank, _Told())
        match report:
            case Hello():
                if not self.phases.connected_s:
                    self.phases = replace(self.phases, connected_s=self._elapsed_s())
            case PhaseChanged(phase=phase, step=step):
                told.phase = phase
                told.reach(step)
            case Progress(step=step, loss=loss, tokens=tokens):
                told.stepped = True
                if told.reach(step):
                    told.loss = told.loss if loss is None else loss
                    told.tokens = told.tokens if tokens is None else tokens
                if not self.phases.first_step_s and all(each.stepped for each in self._told.values()):
                    self.phases = replace(self.phases, first_step_s=self._elapsed_s())
            case Restored(step=step):
                told.restored = report
                told.reach(step)
                if not self.phases.restored_s and all(each.restored is not None for each in self._told.values()):
                    self.phases = replace(self.phases, restored_s=self._elapsed_s())
            case Noted(what=what, departs=departs):
                self._note(RunNote(what=what[:NOTE_CHARS_MAX], departs=departs))
            case CheckpointWriting() | CheckpointCommitted() | CheckpointFailed() | CheckpointRefused():
                return notice_of(report, self.generation)
            case Trail(step=step, points=points, restore_s=restore_s):
                return TrailNotice(generation=self.generation, step=step, points=points, restore_s=restore_s)
            case _:
                assert_never(report)
        return None

    def _note(self, note: RunNote) -> None:
        if note not in self.notes:  # every rank may say it
            self.notes = (*self.notes, note)[:NOTES_MAX]


def notice_of(
    report: CheckpointWriting | CheckpointCommitted | CheckpointFailed | CheckpointRefused, generation: int
) -> CheckpointNotice:
    """The coordinator's form of a worker's word about a checkpoint."""
    match report:
        case CheckpointWriting():
            return CheckpointNotice(kind="writing", generation=generation, step=report.step)
        case CheckpointCommitted():
            return CheckpointNotice(
                kind="committed",
                generation=generation,
                step=report.step,
                path=report.path,
                digest=report.digest,
                bytes_total=report.bytes_total,
                world_size=report.world_size,
                save_s=report.save_s,
                fixed_size=not report.reshardable,
                every_steps=report.every_steps,
                samples=report.samples,
                saved_at=report.saved_at,
            )
        case CheckpointFailed():
            return CheckpointNotice(kind="failed", generation=generation, step=report.step, reason=report.reason)
        case CheckpointRefused():
            return CheckpointNotice(
                kind="refused",
                generation=generation,
                step=0,
                path=report.path,
                part=report.part,
                reason=report.reason,
            )
        case _:
            assert_never(report)


class Notices:
    """The last notices, over all generations."""

    def __init__(self) -> None:
        self._kept: deque[CheckpointNotice] = deque(maxlen=NOTICES_MAX)
        self._trails: dict[tuple[int, int], TrailNotice] = {}

    def add(self, notice: CheckpointNotice | TrailNotice) -> None:
        """Keep one more; the oldest goes. Of saves under way only the newest is news, and only until it is over."""
        if isinstance(notice, TrailNotice):
            self._trails[notice.generation, notice.step] = notice
            for old in list(self._trails)[:-TRAILS_MAX]:
                del self._trails[old]
            return
        writing = self._kept.pop() if self._kept and self._kept[-1].kind == "writing" else None
        self._kept.append(notice)
        if writing is not None and notice.kind != "writing" and notice.step < writing.step:
            self._kept.append(writing)  # an earlier save is over, it is not

    def refused_in(self, generation: int) -> bool:
        """Whether a worker of this generation named the checkpoint it refused."""
        return any(notice.kind == "refused" and notice.generation == generation for notice in self._kept)

    def all(self) -> tuple[CheckpointNotice, ...]:
        """Oldest first."""
        return tuple(self._kept)

    @property
    def trails(self) -> tuple[TrailNotice, ...]:
        """Of the last checkpoints, oldest first."""
        return tuple(self._trails.values())
