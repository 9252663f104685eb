"""Decide what happens on this node: orders and what is seen of launchers in, actions out.

Pure: no clock, no randomness, no I/O; what must be unique comes in as a nonce.
Level-based: ``observe`` writes facts down, ``decide`` looks only at facts, so a
lost, repeated or late event can delay an action but can't bend it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Final, assert_never

from evertrain.agent import errands
from evertrain.agent.model import (
    Action,
    Decision,
    Event,
    JobOrder,
    JobRecord,
    LauncherGone,
    LauncherRecord,
    LauncherUp,
    Memory,
    NodeOrders,
    OrdersArrived,
    SendOrder,
    SessionEnded,
    Stage,
    StartLauncher,
    State,
    StatusArrived,
    StopLauncher,
    Sweep,
    Swept,
    TaskEnded,
    View,
    Wish,
)
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import Desired, GangOrder, GroupState, LauncherState, LauncherStatus

STARTS_MAX: Final = 3
"""Launchers started for one generation of a job before the node says that it cannot."""
_FACTS_OF: Final = attrgetter(
    *(each.name for each in fields(LauncherStatus) if each.name not in {"step", "loss", "tokens"})
)
STOP_MARGIN_S: Final = 5.0
"""What a launcher gets beyond its workers' grace before it is killed."""


def begin(memory: Memory, devices: tuple[str, ...]) -> State:
    """The state of an agent that has just started: every launcher it remembers may be alive."""
    views = {each.job: View(stage=Stage.FOUND, adopted=True) for each in memory.jobs if each.launcher is not None}
    return State(memory=memory, devices=devices, views=views)


def step(state: State, event: Event, *, nonce: str) -> Decision:
    """The whole core: a state and one event in, the next state and what to do out."""
    state, notes = observe(state, event)
    return replace(decide(state, nonce=nonce), notes=notes)


def decide(state: State, *, nonce: str) -> Decision:
    """What the facts call for now. What was decided once is not decided again."""
    actions: list[Action] = []
    for record in state.memory.jobs:
        state = _tend(state, record, actions)
    for job, wish in (state.wanted or {}).items():
        state = _start(state, job, wish, nonce, actions)
    state = errands.decide(state, actions)
    return Decision(state, tuple(actions))


def refusal(memory: Memory, cluster_id: str, term: int) -> str:
    """Why a coordinator of ``cluster_id`` at ``term`` must not be obeyed; empty when it may be."""
    if not cluster_id:
        return "the coordinator does not say which cluster it is of"
    if memory.cluster_id not in ("", cluster_id):
        holding = [each.job for each in memory.jobs if each.launcher is not None]
        if holding:
            return (
                f"the coordinator is of cluster {cluster_id}, this node runs {', '.join(holding)} for cluster "
                f"{memory.cluster_id}: its orders are refused and the launchers go on; give the address of cluster "
                f"{memory.cluster_id}'s coordinator, or end those launchers to let the node join {cluster_id}"
            )
    elif term < memory.term:
        return f"the coordinator's term {term} is over: this node has obeyed term {memory.term}"
    return ""


# Facts


def observe(state: State, event: Event) -> tuple[State, tuple[str, ...]]:
    """Write ``event`` down; decide nothing. Also what was refused, in words."""
    match event:
        case OrdersArrived():
            return _orders(state, event)
        case SessionEnded():
            # The next session numbers its orders anew.
            return replace(state, wanted=None, revision=0), ()
        case TaskEnded(result=result):
            return errands.ended(state, result), ()
        case LauncherUp() | StatusArrived() | LauncherGone() | Swept():
            record = state.record(event.job)
            if record is None or record.launcher is None or record.launcher.owner != event.owner:
                return state, ()  # about a launcher that is no longer ours
            return _launcher(state, record, record.launcher, event), ()
        case _:
            assert_never(event)


def _orders(state: State, event: OrdersArrived) -> tuple[State, tuple[str, ...]]:
    memory, orders = state.memory, event.orders
    if why := refusal(memory, event.cluster_id, orders.term):
        return state, (f"orders refused: {why}",)
    if memory.cluster_id != event.cluster_id:
        # The first cluster, or another one while nothing runs here for the old one.
        jobs = tuple(each for each in memory.jobs if each.launcher is not None)
        memory = Memory(cluster_id=event.cluster_id, jobs=jobs)
        state = replace(state, memory=memory, revision=0)
    elif orders.term == memory.term and orders.revision < state.revision:
        return state, (f"orders refused: revision {orders.revision} is older than {state.revision}",)
    wanted, notes = {}, []
    for each in orders.jobs:
        wanted[each.job], note = _wish(state, orders, each)
        notes += [note] if note else []
    memory = replace(memory, term=orders.term)
    state = errands.ordered(state, orders.tasks)
    return replace(state, memory=memory, wanted=wanted, revision=orders.revision), tuple(notes)


def _wish(state: State, orders: NodeOrders, order: JobOrder) -> tuple[Wish, str]:
    asked = GangOrder(
        term=orders.term,
        generation=order.generation,
        desired=order.desired,
        place=order.place,
        save_and_yield=order.save_and_yield,
    )
    record = state.record(order.job)
    given = None if record is None else record.order
    if given is not None and (asked.term, asked.generation) < (given.term, given.generation):
        note = f"order refused: generation {asked.generation} of job {order.job} is older than {given.generation}"
        return Wish(spec=order.spec, order=given), note
    return Wish(spec=order.spec, order=asked), ""


def _launcher(
    state: State, record: JobRecord, launcher: LauncherRecord, event: LauncherUp | StatusArrived | LauncherGone | Swept
) -> State:
    view = state.views[record.job]
    match event:
        case LauncherUp():
            known = replace(launcher, launcher_id=event.launcher_id, pid=event.pid, start_ticks=event.start_ticks)
            # An order given on an earlier connection may not have arrived: nothing is sent yet.
            return _put(state, replace(record, launcher=known), replace(view, stage=Stage.LIVE, sent=None))
        case StatusArrived(status=status):
            return _put(state, record, replace(view, status=replace(status, job=record.job)))
        case LauncherGone(reason=reason):
            if view.stage in (Stage.GONE, Stage.SWEEPING):
                return state
            record = replace(record, ran=_newest_run(record, view), reason=reason)
            return _put(state, record, replace(view, stage=Stage.GONE))
        case Swept(left=left) if left:
            return _put(state, record, replace(view, stage=Stage.GONE, left=left))
        case Swept():
            starts = 0 if launcher.ending else record.starts
            state = _put(state, replace(record, launcher=None, starts=starts), view)
            return replace(state, views={job: each for job, each in state.views.items() if job != record.job})
        case _:
            assert_never(event)


def _newest_run(record: JobRecord, view: View) -> int:
    told = record.order.generation if record.order is not None and record.order.desired is Desired.RUN else 0
    return max(record.ran, told, view.status.generation if view.status is not None else 0)


def _put(state: State, record: JobRecord, view: View | None = None) -> State:
    jobs = state.memory.jobs
    if any(each.job == record.job for each in jobs):
        jobs = tuple(record if each.job == record.job else each for each in jobs)
    else:
        jobs = (*jobs, record)
    views = state.views if view is None else {**state.views, record.job: view}
    return replace(state, memory=replace(state.memory, jobs=jobs), views=views)


# Decisions


def _tend(state: State, record: JobRecord, actions: list[Action]) -> State:
    """What the launcher of ``record`` needs; or drop the record when there is none and nobody wants one."""
    if record.launcher is None:
        if state.wanted is None or record.job in state.wanted:
            return state
        jobs = tuple(each for each in state.memory.jobs if each.job != record.job)
        return replace(state, memory=replace(state.memory, jobs=jobs))
    view = state.views[record.job]
    match view.stage:
        case Stage.GONE:
            actions.append(Sweep(job=record.job, owner=record.launcher.owner))
            return _put(state, record, replace(view, stage=Stage.SWEEPING))
        case Stage.LIVE:
            return _order(state, record, record.launcher, view, actions)
        case Stage.STARTING | Stage.FOUND | Stage.SWEEPING:
            return state
        case _:
            assert_never(view.stage)


def _order(state: State, record: JobRecord, launcher: LauncherRecord, view: View, actions: list[Action]) -> State:
    """Give a connected launcher the order that holds now, once."""
    order = _order_now(state, record, launcher, view)
    if order is None or order == view.sent:
        return state
    if order.desired is Desired.STOP:
        kill_after_s = record.spec.stop_grace_s + STOP_MARGIN_S
        actions.append(StopLauncher(job=record.job, order=order, kill_after_s=kill_after_s))
        launcher = replace(launcher, ending=True)
    else:
        actions.append(SendOrder(job=record.job, order=order))
    return _put(state, replace(record, order=order, launcher=launcher), replace(view, sent=order))


def _order_now(state: State, record: JobRecord, launcher: LauncherRecord, view: View) -> GangOrder | None:
    wish = None if state.wanted is None else state.wanted.get(record.job)
    asked = wish is not None and wish.order.desired is Desired.STOP
    if launcher.ending or asked or (state.wanted is not None and wish is None):
        known = (record.order, view.status, wish.order if wish is not None and asked else None)
        newest = max((each.generation for each in known if each is not None), default=0)
        return GangOrder(term=state.memory.term, generation=max(newest, record.ran), desired=Desired.STOP)
    if wish is None or _spent(record, wish.order):
        return None
    return wish.order


def _spent(record: JobRecord, order: GangOrder) -> bool:
    """The generation was run here by a launcher that is gone; running it again would join a gang that broke."""
    return order.desired is Desired.RUN and order.generation <= record.ran


def _start(state: State, job: str, wish: Wish, nonce: str, actions: list[Action]) -> State:
    record = state.record(job) or JobRecord(job=job, spec=wish.spec)
    if record.launcher is not None or wish.order.desired is Desired.STOP:
        return state
    if _obstacle(state, record, wish) is not None:
        return _put(state, record)
    generation = wish.order.generation
    launcher = LauncherRecord(owner=f"{job}-{nonce}", devices=_allot(_free(state), wish.spec))
    actions.append(StartLauncher(job=job, owner=launcher.owner, spec=wish.spec, devices=launcher.devices))
    started = replace(
        record,
        spec=wish.spec,
        order=None,
        starts=_starts(record, generation) + 1,
        starts_generation=generation,
        launcher=launcher,
    )
    return _put(state, started, View(stage=Stage.STARTING))


def _starts(record: JobRecord, generation: int) -> int:
    return record.starts if record.starts_generation == generation else 0


@dataclass(frozen=True, slots=True)
class _Obstacle:
    state: LauncherState
    error: str


def _obstacle(state: State, record: JobRecord, wish: Wish) -> _Obstacle | None:
    """Why no launcher may be started for a job that wants one."""
    generation = wish.order.generation
    if wish.order.desired is Desired.RUN:
        # A gang is formed of launchers that are ready. This one's is gone, and the generation with it; a new
        # launcher that joined it would meet workers that wait for the dead ones.
        why = record.reason or "none was prepared"
        return _Obstacle(LauncherState.ABSENT, f"no launcher is left to run generation {generation}: {why}")
    if _starts(record, generation) >= STARTS_MAX:
        error = f"{STARTS_MAX} launchers ended before generation {generation} could run; the last one: {record.reason}"
        return _Obstacle(LauncherState.BROKEN, error)
    need, free = _need(wish.spec), _free(state)
    if need <= len(free):
        return None
    holders = [f"{job} holds {', '.join(held)}" for job, held in _held(state) if held]
    error = f"{need} devices are needed, {len(free)} of {len(state.devices)} are free"
    error += f" ({'; '.join(holders)})" if holders else ""
    leaving = sum(len(held) for job, held in _held(state) if _leaves(state, job))
    if need <= len(free) + leaving:
        return _Obstacle(LauncherState.ABSENT, f"{error}; it waits for those that are being given back")
    return _Obstacle(LauncherState.BROKEN, f"{error}; see --devices of this node's agent")


# Devices


def _need(spec: JobSpec) -> int:
    return spec.nproc_per_node * spec.devices_per_worker


def _held(state: State) -> Iterator[tuple[str, list[str]]]:
    """Devices by job: taken until the launcher is gone and its processes are swept."""
    for record in state.memory.jobs:
        if record.launcher is not None:
            yield record.job, [device for rank in record.launcher.devices for device in rank]


def _free(state: State) -> list[str]:
    taken = {device for _, held in _held(state) for device in held}
    return [device for device in state.devices if device not in taken]


def _leaves(state: State, job: str) -> bool:
    """Its devices come back without anybody's doing."""
    record = state.record(job)
    assert record is not None, "only jobs with a record hold devices"
    assert record.launcher is not None, "only a launcher holds devices"
    return record.launcher.ending or state.views[job].stage in (Stage.GONE, Stage.SWEEPING)


def _allot(free: list[str], spec: JobSpec) -> tuple[tuple[str, ...], ...]:
    each = spec.devices_per_worker
    if each == 0:
        return ()
    return tuple(tuple(free[at * each : (at + 1) * each]) for at in range(spec.nproc_per_node))


# Reports


def statuses(state: State) -> tuple[LauncherStatus, ...]:
    """What this node tells of its launchers, and of jobs that want one and have none."""
    told = [_told(state, record) for record in state.memory.jobs if record.launcher is not None]
    for job, wish in (state.wanted or {}).items():
        record = state.record(job)
        if wish.order.desired is not Desired.STOP and record is not None and record.launcher is None:
            obstacle = _obstacle(state, record, wish)
            if obstacle is not None:  # without one, this very step starts a launcher
                told.append(_status(state, record, obstacle.state, obstacle.error))
    return tuple(told)


def heard(state: State) -> bool:
    """Every launcher of an earlier agent has told its status, or is known to be gone."""
    return not any(
        view.adopted and view.status is None and view.stage in (Stage.FOUND, Stage.LIVE)
        for view in state.views.values()
    )


def facts(state: State) -> tuple[object, ...]:
    """What a report must be sent at once for when it changes: all but progress, which heartbeats carry."""
    return (state.revision, errands.results(state), *map(_FACTS_OF, statuses(state)))


def _told(state: State, record: JobRecord) -> LauncherStatus:
    view = state.views[record.job]
    match view.stage:
        case Stage.GONE | Stage.SWEEPING if view.left:
            error = f"{record.reason}; it left processes that cannot be ended: {view.left}"
            return _status(state, record, LauncherState.BROKEN, error)
        case Stage.GONE | Stage.SWEEPING:
            return _status(state, record, LauncherState.ABSENT, record.reason)
        case Stage.STARTING:
            return _status(state, record, LauncherState.WARMING)
        case Stage.FOUND | Stage.LIVE:
            wish = (state.wanted or {}).get(record.job)
            if view.status is None:
                return _believed(state, record) if view.adopted else _status(state, record, LauncherState.WARMING)
            if wish is not None and _spent(record, wish.order):
                return replace(view.status, error=f"generation {wish.order.generation} ended here with its launcher")
            return view.status
        case _:
            assert_never(view.stage)


def _believed(state: State, record: JobRecord) -> LauncherStatus:
    """A launcher that has not spoken to this agent yet: told as it was ordered, because silence is no failure."""
    order = record.order
    if order is None or order.desired is not Desired.RUN:
        return _status(state, record, LauncherState.WARMING)
    status = _status(state, record, LauncherState.READY)
    return replace(status, generation=order.generation, group=GroupState.RUNNING)


def _status(state: State, record: JobRecord, told: LauncherState, error: str = "") -> LauncherStatus:
    launcher = record.launcher
    alive = launcher is not None and told is not LauncherState.ABSENT
    return LauncherStatus(
        job=record.job,
        launcher_id=launcher.launcher_id if launcher is not None and alive else "",
        pid=launcher.pid if launcher is not None and alive else 0,
        term=state.memory.term,
        state=told,
        error=error,
    )
