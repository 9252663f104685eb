"""One generation of a gang in training: its workers meet, restore, step and save together, and hang together.

Steps are not simulated one by one: progress is a function of time, and only
what changes it is an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from evertrain.chaos.sim import copies
from evertrain.chaos.sim.copies import Moment, Shelf
from evertrain.chaos.sim.history import CheckpointRefused, CheckpointSaved, Restored, Trained
from evertrain.chaos.sim.network import Network
from evertrain.chaos.sim.site import Program, Site
from evertrain.chaos.sim.storage import STORAGE, Condition, Stored
from evertrain.contract.beacon import WITNESSES, Tier
from evertrain.contract.exits import WorkerExit
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import CheckpointNotice, GangPlace, TrailNotice
from evertrain.contract.trail import TrailPoint

CASCADE_S = 0.02
"""Mean time from a closed connection to the error in the neighbour's collective."""
SAVE_ERROR_S = 1.0
"""How long a save takes to find out that storage refuses."""


class Part(Enum):
    """Where a generation is."""

    GATHERING = auto()
    RESTORING = auto()
    STEPPING = auto()
    SAVING = auto()
    OVER = auto()


@dataclass(slots=True, kw_only=True, eq=False)
class Workers:
    """The workers of one generation on one node, as training sees them."""

    node: str
    place: GangPlace
    slowdown: float = 1.0
    frozen: int = 0
    """Faults under which they do nothing: stopped, or stuck in their own code."""
    stuck: int = 0
    """Faults under which they complete no collective, though their own timeout still works."""
    ended: bool = False
    on_news: Callable[[], None]
    """Something that a status tells has changed."""
    on_progress: Callable[[], None]
    """Steps were completed since the last status: a heartbeat would carry them."""
    on_end: Callable[[int, str], None]
    """They ended by themselves, with an exit code and a message."""
    connected_s: float = 0.0
    restored_s: float = 0.0
    first_step_s: float = 0.0
    begun_at: float = 0.0
    yielded: bool = False
    copies: Shelf
    """Of its node."""
    restored_step: int = 0
    restored_from: str = ""
    notices: list[CheckpointNotice] = field(default_factory=list)
    trails: list[TrailNotice] = field(default_factory=list)


class Ring:
    """The workers that take part, in group rank order; each has its place between two others."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._members: dict[str, Workers] = {}
        self._saved_step = 0

    def add(self, workers: Workers) -> None:
        """One more node takes part."""
        self._members[workers.node] = workers

    def has(self, workers: Workers) -> bool:
        """Whether these very workers take part."""
        return self._members.get(workers.node) is workers

    @property
    def first(self) -> Workers:
        """Those with rank 0, or the lowest so far."""
        return min(self._members.values(), key=lambda each: each.place.group_rank)

    @property
    def all(self) -> list[Workers]:
        """In group rank order."""
        return sorted(self._members.values(), key=lambda each: each.place.group_rank)

    @property
    def complete(self) -> bool:
        """Nobody is missing."""
        return bool(self._members) and len(self._members) == self.first.place.group_world_size

    def neighbours(self, workers: Workers) -> list[Workers]:
        """Whose connections to ``workers`` a collective uses."""
        ring = self.all
        at = ring.index(workers)
        return list(dict.fromkeys((ring[at - 1], ring[(at + 1) % len(ring)])))

    def stalled(self) -> bool:
        """Whether a collective would hang: somebody does nothing, or a link of the ring is cut."""
        ring, network = self.all, self._network
        if any(each.frozen or each.stuck for each in ring):
            return True
        pairs = zip(ring, [*ring[1:], *ring[:1]], strict=True)
        return any(network.is_cut(a.node, b.node) or network.is_cut(b.node, a.node) for a, b in pairs)

    def time_out(self, seconds: float) -> None:
        """All that wait in a collective give up."""
        for each in self.all:
            if not each.ended and not each.frozen:
                each.on_end(1, f"RuntimeError: Timed out waiting {seconds:.0f}000ms for recv operation")

    def saved(self, generation: int, step: int, spec: JobSpec) -> None:
        """A checkpoint was made: by now the steps after the one before are over, and told of."""
        if self._saved_step:
            self._tell_trail(generation, self._saved_step, spec, factor=1.0)
        self._saved_step = step

    def tell_drill(self, generation: int, restored: int, spec: JobSpec, *, forgets: bool) -> None:
        """The end of the workers' steps; if it is one of a drill, they tell how training went on."""
        if spec.drill_steps:
            self._tell_trail(generation, restored, spec, factor=1.1 if forgets else 1.0)

    def _tell_trail(self, generation: int, after: int, spec: JobSpec, *, factor: float) -> None:
        """``factor``: of the loss that it would have without a fault."""
        steps = range(after + 1, after + 1 + spec.checkpoint.drill.steps)
        points = tuple(TrailPoint(step=at, loss=factor / at, grad_norm=1.0) for at in steps)
        for each in self.all[:WITNESSES]:
            each.trails.append(TrailNotice(generation=generation, step=after, points=points, restore_s=each.restored_s))

    def leave_copies(self, generation: int, step: int) -> None:
        """The last step that all copied stays in their nodes' memory, sealed by processes that live on."""
        moment = Moment(generation=generation, step=step, world_size=self.first.place.world_size)
        keepers = {w.place.group_rank: w.place.copies_to for w in self.all if w.place.copies_to is not None}
        copies.leave(self._shelves, keepers, moment)

    def newest_copies(self, *, newer_than: int) -> tuple[Moment, Tier] | None:
        """What all together have in memory, if it may be restored."""
        place = self.first.place
        return copies.newest(
            self._shelves, world_size=place.world_size, since=place.memory_since, newer_than=newer_than
        )

    @property
    def _shelves(self) -> dict[int, Shelf]:
        return {each.place.group_rank: each.copies for each in self._members.values()}

    def mount_hangs(self) -> bool:
        """Whether storage hangs on a node."""
        return any(self._network.is_cut(each.node, STORAGE) for each in self._members.values())


class Training:
    """All workers of one generation."""

    def __init__(self, site: Site, job: str, generation: int, spec: JobSpec) -> None:
        self._site, self._job, self._generation, self._spec = site, job, generation, spec
        self._program: Program = site.program(job)
        self._rng = site.rng("training")
        self._ring = Ring(site.network)
        self._part = Part.GATHERING
        self._timer: asyncio.TimerHandle | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._base = self._first = 0
        self._stepping_since = 0.0
        self._pace_s = self._program.step_s
        self._yield_asked = self._left_well = False  # well: as agreed, at the end of the script or after a save
        self._restore_path = ""
        self._save_every = spec.checkpoint.every_steps if spec.checkpoint.dir and self._program.uses_trainer else 0

    # -- who takes part -----------------------------------------------------------------

    @property
    def over(self) -> bool:
        """It broke, or reached its end."""
        return self._part is Part.OVER

    @property
    def step(self) -> int:
        """Completed steps."""
        return self._done()

    def join(self, workers: Workers) -> None:
        """Workers were forked on one more node."""
        if self.over:
            _echo(workers)
            return
        self._ring.add(workers)
        self._expect_timeout()
        if self._ring.complete:
            self._site.later(self._program.meet_s, self._met)

    def gone(self, workers: Workers, *, reset: bool) -> None:
        """Workers ended on a node; with ``reset`` the others' connections to them were closed."""
        workers.ended = True
        if not self._ring.has(workers):
            return
        self._break()
        if reset and not self._left_well:
            for each in self._ring.neighbours(workers):
                self._site.later(self._rng.expovariate(1.0) * CASCADE_S, partial(_echo, each))

    def disturbed(self) -> None:
        """Somebody froze or goes on, got slower, or a link changed: progress goes on from here at the new pace."""
        if self._part is Part.STEPPING:
            self._base, self._stepping_since = self._done(), self._site.now()
            self._go_on()
        elif self._part is Part.GATHERING and self._ring.complete:
            self._site.later(self._program.meet_s, self._met)

    def ask_to_yield(self) -> None:
        """Save at the next step boundary and leave."""
        if not self._yield_asked:
            if self._part is Part.STEPPING:
                # Before the next milestone changes: what was done until now was done on the way to the old one.
                self._base, self._stepping_since = self._done(), self._site.now()
            self._yield_asked = True
            self.disturbed()

    # -- meeting and restoring --------------------------------------------------------------

    def _met(self) -> None:
        if self._part is not Part.GATHERING or self._ring.stalled():
            return
        self._part = Part.RESTORING
        for each in self._ring.all:
            each.connected_s = self._site.now() - each.begun_at
            each.on_news()
        path = self._ring.first.place.restore_path
        stored = self._site.storage.kept.get(path)
        if found := self._ring.newest_copies(newer_than=0 if stored is None else stored.step):
            moment, tier = found
            told = Restored(self._job, self._generation, "", "", moment.step, copied_by=moment.generation)
            self._site.history.add(told)
            self._begin(moment.step, tier)
            return
        seconds = self._program.restore_s * self._site.storage.slow if path else 0.0
        self._timer = self._site.later(seconds, self._read)

    def _begin(self, step: int, tier: Tier) -> None:
        self._part, self._base, self._first = Part.STEPPING, step, step
        self._stepping_since = self._site.now()
        for each in self._ring.all:
            each.restored_s = self._site.now() - each.begun_at
            each.restored_step, each.restored_from = step, tier.value if step else ""
            each.on_news()
        self._go_on()

    def _read(self) -> None:
        place = self._ring.first.place
        path, storage = place.restore_path, self._site.storage
        if self._ring.stalled() or (path and (storage.hanging or self._ring.mount_hangs())):
            self._timer = self._site.later(1.0, self._read)
            self._expect_timeout()
            return
        if path and storage.down:
            self._ring.first.on_end(WorkerExit.CHECKPOINT_UNREADABLE, f"{path} cannot be read: {storage.refusal()}")
            return
        if path and (found := storage.condition(path)) is not Condition.WHOLE:
            self._refuse(path, f"{found}")
            return
        stored = storage.kept.get(path)
        step = 0 if stored is None else stored.step
        if stored is not None and stored.digest != place.restore_digest:
            self._refuse(path, "its digest is not the one ordered")
            return
        self._restore_path = path
        self._site.history.add(Restored(self._job, self._generation, path, place.restore_digest, step))
        self._begin(step, Tier.STORAGE)

    def _refuse(self, path: str, why: str) -> None:
        reader = self._ring.first
        self._site.history.add(CheckpointRefused(self._job, self._generation, path, why))
        reader.notices.append(_refused(path, why, generation=self._generation))
        reader.on_end(WorkerExit.CHECKPOINT_REFUSED, why)

    # -- stepping ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Set the timer for the next step that is news; or wait for the end of a stall."""
        self._cancel()
        if self._ring.stalled():
            self._expect_timeout()
            return
        self._forget_timeout()
        self._pace_s = self._program.step_s * max(each.slowdown for each in self._ring.all)
        target = self._next_milestone()
        left_s = (target - self._base) * self._pace_s - (self._site.now() - self._stepping_since)
        self._timer = self._site.later(max(0.0, left_s), self._milestone)

    def _next_milestone(self) -> int:
        program, step = self._program, self._base
        if self._base == self._first or self._yield_asked:
            return step + 1
        every = self._save_every
        save = (step // every + 1) * every if every else program.steps
        fail = program.fails_at if program.fails_at > step else program.steps
        return min(save, fail, _last_step(program, self._spec, self._first))

    def _milestone(self) -> None:
        self._base, self._stepping_since = self._next_milestone(), self._site.now()
        if self._base == self._first + 1:
            for each in self._ring.all:
                each.first_step_s = self._site.now() - each.begun_at
                each.on_news()
        every = self._save_every
        if self._base >= _last_step(self._program, self._spec, self._first):
            self._ring.tell_drill(self._generation, self._first, self._spec, forgets=self._program.forgets)
            self._end_well(within_s=0.2)
        elif self._base == self._program.fails_at:
            self._ring.first.on_end(1, "ValueError: loss is NaN")
        elif self._yield_asked or (every and self._base % every == 0):
            self._save()
        else:
            self._go_on()

    def _end_well(self, *, within_s: float, yielded: bool = False) -> None:
        self._left_well = True
        self._break()
        for each in self._ring.all:
            each.yielded = yielded
            self._site.later(self._rng.uniform(0.0, within_s), partial(_end, each))

    def _save(self) -> None:
        self._part = Part.SAVING
        storage = self._site.storage
        seconds = SAVE_ERROR_S if storage.refusal() else self._program.save_s * storage.slow
        self._timer = self._site.later(seconds, self._saved)

    def _saved(self) -> None:
        storage = self._site.storage
        if self._ring.stalled() or storage.hanging or self._ring.mount_hangs():
            self._timer = self._site.later(1.0, self._saved)
            self._expect_timeout()
            return
        told = self._ring.all
        if why := storage.refusal():
            notice = CheckpointNotice(kind="failed", generation=self._generation, step=self._base, reason=why)
            told = told[:1]
        else:
            stored = storage.put(self._job, self._base, self._generation)
            self._site.history.add(CheckpointSaved(self._job, self._generation, stored.step, stored.path))
            notice = _committed(stored, world_size=told[0].place.world_size, save_s=self._program.save_s)
            told = told[:WITNESSES]
            self._ring.saved(self._generation, self._base, self._spec)
        for each in told:
            each.notices.append(notice)
        self._cancel()
        self._part, self._stepping_since = Part.STEPPING, self._site.now()
        if self._yield_asked and notice.kind == "committed":
            self._end_well(within_s=0.1, yielded=True)
            return
        self._yield_asked = False
        for each in told:
            each.on_news()
        self._go_on()

    # -- breaking --------------------------------------------------------------------------------

    def _break(self) -> None:
        if self._part is Part.OVER:
            return
        self._base = self._done()
        self._cancel()
        self._forget_timeout()
        every = self._spec.checkpoint.memory_every_steps if self._save_every else 0
        if every and self._part in (Part.STEPPING, Part.SAVING) and (step := self._base // every * every) > self._first:
            self._ring.leave_copies(self._generation, step)
        self._part = Part.OVER
        for each in self._ring.all:
            each.on_progress()
        if self._base > self._first or self._restore_path:
            self._site.history.add(Trained(self._job, self._generation, self._first, self._base))
        # Whoever hears nothing of it stays in its collective until that times out.
        seconds = self._program.collective_timeout_s
        self._site.later(seconds, partial(self._ring.time_out, seconds))

    def _done(self) -> int:
        if self._part is not Part.STEPPING or self._timer is None:
            return self._base  # no timer: it is stalled
        done = int((self._site.now() - self._stepping_since) / self._pace_s + 1e-6)
        return min(self._base + done, max(self._base, self._next_milestone() - 1))

    def _expect_timeout(self) -> None:
        if self._timeout is None:
            self._timeout = self._site.later(self._program.collective_timeout_s, self._maybe_time_out)

    def _forget_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = None

    def _maybe_time_out(self) -> None:
        self._timeout = None
        waiting = self._part is Part.GATHERING or self._ring.stalled() or self._site.storage.hanging > 0
        if not self.over and (waiting or self._ring.mount_hangs()):
            self._ring.time_out(self._program.collective_timeout_s)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


def _refused(path: str, why: str, *, generation: int) -> CheckpointNotice:
    return CheckpointNotice(kind="refused", generation=generation, step=0, path=path, part="model.pt", reason=why)


def _committed(stored: Stored, *, world_size: int, save_s: float) -> CheckpointNotice:
    return CheckpointNotice(
        kind="committed",
        generation=stored.generation,
        step=stored.step,
        path=stored.path,
        digest=stored.digest,
        bytes_total=1 << 30,
        world_size=world_size,
        save_s=save_s,
    )


def _last_step(program: Program, spec: JobSpec, first: int) -> int:
    """Where a script that begins at ``first`` ends: a drill after its few steps."""
    return min(program.steps, first + spec.drill_steps) if spec.drill_steps else program.steps


def _echo(workers: Workers) -> None:
    """A neighbour's connection was closed."""
    if not workers.ended and not workers.frozen:
        workers.on_end(1, "RuntimeError: Connection closed by peer")


def _end(workers: Workers) -> None:
    """The script came to its end."""
    if not workers.ended:
        workers.on_end(0, "")
