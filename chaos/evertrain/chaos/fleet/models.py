"""Policies of other systems as models: what a fault costs follows from a few lengths. Ours is not played here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from evertrain.chaos.fleet.policy import ModelPolicy, ReplacedBy
from evertrain.chaos.fleet.run import Run, kind_of
from evertrain.chaos.fleet.training import Bucket
from evertrain.chaos.fleet.units import Phase, Roster, Unit
from evertrain.chaos.fleet.weather import Fault, Plane, PlaneFault, Weather, neighbours

PUT_OFF_S = 3600.0
"""Planned work on a job that is down waits so long."""
ALL = -1
DOWN = {Bucket.WAIT_PERSON, Bucket.WAIT_NODES}
"""Nothing runs, so that nothing fails."""


class ModelRun(Run):
    """A model of a policy in one weather."""

    def __init__(self, policy: ModelPolicy, weather: Weather, days: float) -> None:
        super().__init__(policy, weather, days)
        self.policy = policy
        self.roster = Roster(policy, weather)
        self.units, self.home = self.roster.units, self.roster.home
        self.stalled: dict[int, Bucket] = {}
        """Why the units that could train stand still, by the unit that they wait for; ALL: they regroup."""

    # -- time --------------------------------------------------------------------------

    def start(self) -> None:
        """The gang trains from the first second: what comes before is the same for all."""

    def pass_time(self, to_s: float) -> None:
        """Book what everybody does."""
        running, waiting = 0, dict.fromkeys(Bucket, 0)
        for unit in self.units:
            if unit.bucket is None:
                running += len(unit.members)
            else:
                waiting[unit.bucket] += len(unit.members)
        if running and (why := self._standing(running)):
            waiting[why] += running
            running = 0
        speed = self.slowness.speed(self.now_s, self.home.__contains__)
        held = {bucket: nodes for bucket, nodes in waiting.items() if nodes}
        self.books.pass_time(to_s, running=running, out=self.roster.out, speed=speed, waiting=held)

    def _standing(self, running: int) -> Bucket | None:
        if self.stalled:
            return next(iter(self.stalled.values()))
        too_few = running < self.policy.nodes_min_share * self.weather.nodes
        return Bucket.WAIT_NODES if too_few else None

    # -- faults ------------------------------------------------------------------------

    def works(self, node: int) -> bool:
        """A member of a unit that runs, or is on its way."""
        unit = self.home.get(node)
        return unit is not None and unit.bucket not in DOWN

    def strike_plane(self, event: PlaneFault) -> None:
        """Only a coordinator that is lost can matter."""
        if event.kind is Plane.COORDINATOR_CRASH and self.policy.coordinator_crash_stops:
            self._stop_all("coordinator_crash", "coordinator crash")

    def broken(self, fault: Fault) -> None:
        """Its unit goes down; others with it, where a domain is hit."""
        self._count(fault, self.home[fault.node])
        for node in neighbours(fault, self.weather.nodes):
            unit = self.home.get(node)
            if unit is None or unit.bucket in DOWN:
                continue
            if fault.needs_node:
                unit.bad[node] = fault
            # While one fault is not known yet, another adds nothing to the wait.
            if unit.bucket is not Bucket.DETECT:
                self._down(unit, fault)

    def _count(self, fault: Fault, unit: Unit) -> None:
        if len(self.units) > 1 and unit.bucket is not None:
            self.books.interruptions[fault.cause] += 1  # of a group that had left: the others do not mind
        else:
            self.books.strike(cause=fault.cause, kind=kind_of(fault))

    def _down(self, unit: Unit, fault: Fault) -> None:
        was_up = unit.bucket is None
        unit.fault = fault
        unit.way = deque([Phase(Bucket.DETECT, self.policy.notices_s(fault), partial(self._noticed, unit, was_up))])
        if was_up:
            self.stalled[unit.number] = Bucket.DETECT
        self._next(unit)

    def silent(self, fault: Fault) -> None:
        """Everything since it began is lost; the node is replaced."""
        unit = self.home.get(fault.node)
        if unit is None:
            return
        if unit.bucket is not None:
            self.later(60.0, partial(self.silent, fault))
            return
        self.books.strike(cause=fault.cause, kind=kind_of(fault))
        self.books.notice(fault.at_s)
        unit.fault = fault
        unit.bad[fault.node] = fault
        self.books.training.roll_back(before_s=fault.at_s)
        self._leave(unit)
        self.books.touches["bad node"] += 2
        unit.way = deque([Phase(Bucket.STOP, self.policy.stop_s, partial(self._replace, unit)), *self._start(unit)])
        self._next(unit)

    def planned(self, fault: Fault) -> None:
        """People save first, then stop what they need."""
        unit = self.home.get(fault.node)
        if unit is None:
            return
        if unit.bucket is not None or (not fault.needs_node and any(each.bucket for each in self.units)):
            self.later(PUT_OFF_S, partial(self.strike, fault))
            return
        self.books.strike(cause=fault.cause, kind=kind_of(fault), planned=True)
        self.books.touches["planned work"] += 1 + fault.needs_node
        if len(self.units) > 1:
            self.books.training.saved(self.now_s)
        for each in [unit] if fault.needs_node else self.units:
            each.fault = fault
            each.bad |= {fault.node: fault} if fault.needs_node else {}
            self._restart_saved(each)

    def _restart_saved(self, unit: Unit) -> None:
        unit.way = deque([Phase(Bucket.SAVE, self.policy.checkpoint_stall_s, self._saved)])
        unit.way.extend([Phase(Bucket.STOP, self.policy.stop_s, partial(self._replace, unit)), *self._start(unit)])
        if len(self.units) > 1:
            unit.way.popleft()  # the others hold its state
            self._leave(unit)
        self._next(unit)

    def _saved(self) -> bool:
        self.books.training.saved(self.now_s)
        self._lose()
        return True

    def _stop_all(self, cause: str, kind: str) -> None:
        if any(unit.bucket for unit in self.units):
            return
        self.books.strike(cause=cause, kind=kind)
        self.books.notice()
        self.books.training.roll_back()
        for unit in self.units:
            unit.way = deque(self._start(unit))
            self._next(unit)

    # -- the way back --------------------------------------------------------------------

    def _noticed(self, unit: Unit, was_up: bool) -> bool:
        self.stalled.pop(unit.number, None)
        if was_up or len(self.units) == 1:
            self.books.notice()
            self._leave(unit)
        unit.way.extend(self._way_back(unit))
        return True

    def _leave(self, unit: Unit) -> None:
        """The others regroup, or nobody is left who has the state."""
        unit.bucket = Bucket.STOP
        if not self._lose():
            self._regroup()

    def _lose(self) -> bool:
        if any(unit.bucket is None for unit in self.units):
            return False
        self.books.training.roll_back()
        return True

    def _regroup(self) -> None:
        self.books.generations += ALL not in self.stalled
        self.stalled[ALL] = Bucket.RESTART
        self.later(self.policy.regroup_s, self._regrouped)

    def _regrouped(self) -> None:
        self.stalled.pop(ALL, None)
        self.books.recovered()

    def _way_back(self, unit: Unit) -> Iterator[Phase]:
        fault, policy = unit.fault, self.policy
        by_person = policy.replaced_by is ReplacedBy.PERSON
        assert fault is not None, "a way back is from a fault"
        yield Phase(Bucket.STOP, policy.stop_s)
        if unit.bad:
            for _ in range(policy.futile_restarts):
                yield from self._start(unit, last=False)
                yield Phase(Bucket.DETECT, self.policy.notices_s(fault))
                yield Phase(Bucket.STOP, policy.stop_s)
            reaction_s = policy.person.takes_s(fault.reaction_z) if by_person else 0.0
            if by_person:
                self.books.touches["bad node"] += 2  # out, and back after its repair
            yield Phase(Bucket.WAIT_PERSON, reaction_s, partial(self._replace, unit))
        yield from self._start(unit)

    def _start(self, unit: Unit, *, last: bool = True) -> list[Phase]:
        join_s = self.policy.join_s if last and unit.bad else 0.0
        restart_s = self.policy.restart_s(self.trace, unit.size) + join_s
        up = partial(self._up, unit) if last else None
        return [Phase(Bucket.RESTART, restart_s), Phase(Bucket.RESTORE, self.policy.restore_s, up)]

    def _up(self, unit: Unit) -> bool:
        unit.bucket = None
        if len(self.units) > 1:
            self._regroup()
        else:
            self.books.generations += 1
            self.books.recovered()
        if len(unit.members) < unit.size:
            self._grow(unit)
        return True

    def _next(self, unit: Unit) -> None:
        """Enter the next phase of the unit's way."""
        unit.version += 1
        if not unit.way:
            return
        phase = unit.way[0]
        unit.bucket = phase.bucket
        self.later(phase.seconds, partial(self._ended, unit, phase, unit.version))

    def _ended(self, unit: Unit, phase: Phase, version: int) -> None:
        if unit.version != version:
            return
        if phase.then is not None and not phase.then():
            return
        if unit.way and unit.way[0] is phase:
            unit.way.popleft()
        self._next(unit)

    # -- nodes ----------------------------------------------------------------------------

    def _replace(self, unit: Unit) -> bool:
        """Bad members leave for repair, spares come; False: too few, the unit waits."""
        for node, fault in self.roster.take_out(unit).items():
            self.later(fault.repair_s, partial(self._repaired, node))
        if self.roster.fill(unit):
            return True
        unit.bucket = Bucket.WAIT_NODES
        return False

    def _repaired(self, node: int) -> None:
        self.roster.give_back(node)
        for unit in self.units:
            if unit.bucket is Bucket.WAIT_NODES:
                if self.roster.fill(unit):
                    unit.way.popleft()
                    self._next(unit)
                return
        for unit in self.units:
            if unit.bucket is None and len(unit.members) < unit.size:
                self._grow(unit)
                return

    def _grow(self, unit: Unit) -> None:
        """A shrunk gang saves and starts again with more, when whole replicas can join."""
        if self.roster.could_grow(unit):
            self.books.strike(cause="grow", kind="grow", planned=True)
            self._restart_saved(unit)
