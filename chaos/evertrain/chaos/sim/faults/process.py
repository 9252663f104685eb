"""Faults of worker processes: they die, stand still, get stuck or slow."""

from __future__ import annotations

from evertrain.chaos.sim.faults.kind import Cost, Group, Hits, Kind, Lasts, Scene, Undo, all_of, has_workers
from evertrain.chaos.sim.faults.touch import die, freeze, once, sized, slow, stick, stop
from evertrain.chaos.sim.plan import Planned


def _oom_kill(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    # What remains of the memory is short for those that follow, too.
    undo = scene.afflictions.afflict(node, slow(1.5))
    for launcher, _ in scene.gangs(node):
        launcher.kill_worker(-9)
    return undo


def _stuck_everywhere(scene: Scene, planned: Planned) -> Undo:
    """All workers of the gang that ``target`` takes part in."""
    here = {launcher.job for launcher, _ in scene.gangs(scene.node(planned.target))}
    everywhere = [each for node in scene.world.nodes.values() for each in scene.gangs(node) if each[0].job in here]
    return all_of([stick(launcher, gang) for launcher, gang in everywhere])


KINDS = (
    Kind(
        name="sigkill",
        group=Group.PROCESS,
        what="A worker is killed from outside.",
        sources=("trace: process.sigkill",),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=once(die(-9)),
    ),
    Kind(
        name="segfault",
        group=Group.PROCESS,
        what="A worker reads memory that is not its own.",
        sources=("trace: process.segfault",),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=once(die(-11)),
    ),
    Kind(
        name="abort",
        group=Group.PROCESS,
        what="A watchdog inside a worker aborts it.",
        sources=("case L10",),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=once(die(-6, "Fatal Python error: Aborted")),
    ),
    Kind(
        name="exit_code",
        group=Group.PROCESS,
        what="A worker calls sys.exit with a code of its own.",
        sources=("trace: process.exit_code",),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=once(die(3)),
    ),
    Kind(
        name="python_exception",
        group=Group.PROCESS,
        what="One rank meets a sample that its code can't digest, once.",
        sources=("trace: process.python_exception", "case L15"),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=once(die(1, "KeyError: 'labels'")),
    ),
    Kind(
        name="oom_kill",
        group=Group.PROCESS,
        what="The kernel kills a worker for want of memory, and memory stays short for a while.",
        sources=("trace: process.oom_kill", "case L23"),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=_oom_kill,
        lasts=Lasts(300.0, 3600.0),
    ),
    Kind(
        name="sigstop",
        group=Group.PROCESS,
        what="Somebody stops a worker, and lets it go on.",
        sources=("trace: process.sigstop",),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=stop,
        lasts=Lasts(30.0, 1800.0),
    ),
    Kind(
        name="deadlock",
        group=Group.PROCESS,
        what="A worker's threads wait for each other; it heeds nothing, and only its peers' timeout tells.",
        sources=("trace: process.deadlock_gil", "case L09"),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=once(freeze),
        lasts=Lasts(900.0, 3600.0),
    ),
    Kind(
        name="collective_never_joined",
        group=Group.PROCESS,
        what="A rank waits elsewhere while the others are in a collective, until that times out on all.",
        sources=("trace: process.collective_never_joined", "case L04"),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=once(stick),
        lasts=Lasts(900.0, 1200.0),
    ),
    Kind(
        name="collective_stuck",
        group=Group.PROCESS,
        what="All ranks are in a collective that does not complete, as with a lock in the library; it may come loose.",
        sources=("trace: process.collective_stuck", "case L09"),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=_stuck_everywhere,
        lasts=Lasts(300.0, 1200.0),
    ),
    Kind(
        name="dataloader_stall",
        group=Group.PROCESS,
        what="A rank waits for its data, and everybody for that rank.",
        sources=("trace: process.dataloader_stall", "case L07"),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.WORK,
        begin=once(stick),
        lasts=Lasts(45.0, 700.0),
    ),
    Kind(
        name="slow_rank",
        group=Group.PROCESS,
        what="One rank is slower than the others, until it is replaced. Size: the factor.",
        sources=("trace: process.slow_rank", "trace: fail_slow"),
        hits=Hits.NODE,
        needs=has_workers,
        cost=Cost.NOTHING,
        begin=sized(slow),
        lasts=Lasts(600.0, 36_000.0),
        sizes=(1.1, 3.0),
    ),
)
