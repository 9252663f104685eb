"""Faults of checkpoints and of the storage they lie on."""

from __future__ import annotations

from functools import partial

from evertrain.chaos.sim.faults.kind import AT_ONCE, Cost, Group, Hits, Kind, Lasts, Scene, Undo, more, nothing, runs
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.storage import Condition, Stored
from evertrain.controlplane.core.state import Job


def _torn(scene: Scene, planned: Planned) -> Undo:
    scene.world.site.storage.tear_next += int(planned.size)
    return nothing


def _whole(scene: Scene, job: Job) -> list[Stored]:
    return [each for each in scene.world.site.storage.of(job.id) if each.condition is Condition.WHOLE]


def _more_than_spoilt(scene: Scene, planned: Planned) -> bool:
    """A gang that runs, and a good checkpoint that is left for it."""
    return runs(scene, planned) and len(_whole(scene, scene.job(planned.target))) > planned.size


def _any_whole(scene: Scene, planned: Planned) -> bool:
    job = scene.find_job(planned.target)
    return job is not None and bool(_whole(scene, job))


def _spoilt(condition: Condition, scene: Scene, planned: Planned) -> Undo:
    """The newest checkpoints of a job are spoilt. The oldest good one stays: nothing can be done without."""
    job = scene.job(planned.target)
    for each in _whole(scene, job)[-int(planned.size) :]:
        scene.world.site.storage.spoil(each.path, condition)
    # It shows when a worker dies.
    for launcher, _ in scene.gangs(scene.node(f"{job.name}/0")):
        launcher.kill_worker(-9)
    return nothing


def _all_rotten(scene: Scene, planned: Planned) -> Undo:
    """Not one is left: the job starts from the beginning."""
    job = scene.job(planned.target)
    for each in _whole(scene, job):
        scene.world.site.storage.spoil(each.path, Condition.ROTTEN)
    return nothing


def _down(scene: Scene, _planned: Planned) -> Undo:
    return more(scene.world.site.storage, down=1)


def _full(scene: Scene, _planned: Planned) -> Undo:
    return more(scene.world.site.storage, full=1)


def _hangs(scene: Scene, _planned: Planned) -> Undo:
    return more(scene.world.site.storage, hanging=1)


def _slow(scene: Scene, planned: Planned) -> Undo:
    storage = scene.world.site.storage

    def pace(by: float) -> None:
        storage.slow = round(storage.slow * by, 9)

    pace(planned.size)
    return lambda: pace(1.0 / planned.size)


def _kind(name: str, what: str, condition: Condition, *sources: str, most: int = 1) -> Kind:
    return Kind(
        name=name,
        group=Group.CHECKPOINT,
        what=what,
        sources=sources,
        hits=Hits.JOB,
        cost=Cost.WORK,
        needs=_more_than_spoilt,
        begin=partial(_spoilt, condition),
        sizes=(1, most),
    )


OUTAGE = Lasts(300.0, 3600.0)
"""The trace's checkpoint_store_outage."""

KINDS = (
    Kind(
        name="torn",
        group=Group.CHECKPOINT,
        what="The next saves are reported as done, and a file of theirs is short. Size: how many.",
        sources=("trace: checkpoint.torn", "lesson G6", "case C01", "case L38"),
        hits=Hits.STORAGE,
        cost=Cost.WORK,
        begin=_torn,
        lasts=AT_ONCE,
        sizes=(1, 3),
    ),
    _kind(
        "rotten",
        "A bit of the newest checkpoint flips, and a worker dies.",
        Condition.ROTTEN,
        "trace: checkpoint.corrupt",
        "lesson G4",
    ),
    _kind(
        "missing_shard",
        "A shard of the newest checkpoint is missing, and a worker dies.",
        Condition.SHARD_MISSING,
        "trace: checkpoint.missing_shard",
        "case C01",
    ),
    _kind(
        "checkpoint_deleted",
        "Somebody deletes the newest checkpoint, and a worker dies.",
        Condition.GONE,
        "case C04",
        "case C05",
    ),
    _kind(
        "rotten_newest",
        "A bad disk spoils the newest checkpoints, and a worker dies. Size: how many.",
        Condition.ROTTEN,
        "trace: checkpoint.corrupt",
        "case L39",
        most=2,
    ),
    Kind(
        name="all_rotten",
        group=Group.CHECKPOINT,
        what="Every checkpoint of a job is spoilt.",
        sources=("trace: checkpoint.corrupt", "case C04"),
        hits=Hits.JOB,
        cost=Cost.JOB,
        needs=_any_whole,
        begin=_all_rotten,
        lasts=AT_ONCE,
    ),
    Kind(
        name="storage_outage",
        group=Group.CHECKPOINT,
        what="The storage is down: every access fails at once.",
        sources=("trace: checkpoint.store_outage", "trace: host.mount_hang"),
        hits=Hits.STORAGE,
        cost=Cost.WORK,
        begin=_down,
        lasts=OUTAGE,
    ),
    Kind(
        name="storage_full",
        group=Group.CHECKPOINT,
        what="No space is left, or the quota is used up.",
        sources=("trace: checkpoint.quota", "case C04"),
        hits=Hits.STORAGE,
        cost=Cost.NOTHING,
        begin=_full,
        lasts=Lasts(1800.0, 10_800.0),
    ),
    Kind(
        name="storage_hang",
        group=Group.CHECKPOINT,
        what="Every access to the storage waits.",
        sources=("trace: host.mount_hang", "lesson G7"),
        hits=Hits.STORAGE,
        cost=Cost.WORK,
        begin=_hangs,
        lasts=OUTAGE,
    ),
    Kind(
        name="storage_slow",
        group=Group.CHECKPOINT,
        what="The storage is slow. Size: the factor.",
        sources=("trace: checkpoint.store_slow",),
        hits=Hits.STORAGE,
        cost=Cost.WORK,
        begin=_slow,
        lasts=Lasts(900.0, 7200.0),
        sizes=(2.0, 60.0),
    ),
)
