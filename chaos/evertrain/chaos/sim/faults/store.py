"""Faults of etcd: away, slow, full, of unknown outcome, compacted, without leases."""

from __future__ import annotations

from evertrain.chaos.sim.faults.kind import (
    AT_ONCE,
    Cost,
    Group,
    Hits,
    Kind,
    Lasts,
    Scene,
    Undo,
    both_ways,
    more,
    nothing,
)
from evertrain.chaos.sim.plan import Planned
from evertrain.chaos.sim.store import ETCD


def _away(scene: Scene, planned: Planned) -> Undo:
    scene.world.server.go_away()
    return scene.world.server.come_back


def _slow(scene: Scene, planned: Planned) -> Undo:
    return more(scene.world.server, slow_s=planned.size)


def _unknown(scene: Scene, planned: Planned) -> Undo:
    return more(scene.world.server, unknown=planned.size)


def _quota(scene: Scene, _planned: Planned) -> Undo:
    return more(scene.world.server, quota_full=1)


def _expiry(scene: Scene, planned: Planned) -> Undo:
    """Its leader is stuck in a slow disk, its lease clock runs on, and every lease is gone at once."""
    server = scene.world.server
    server.go_away()

    def undo() -> None:
        server.revoke()
        server.come_back()

    return undo


def _revoked(scene: Scene, planned: Planned) -> Undo:
    scene.world.server.revoke()
    return nothing


def _compacted(scene: Scene, planned: Planned) -> Undo:
    """The history that coordinators on standby, cut off meanwhile, have not read is forgotten."""
    world = scene.world
    standby = [name for name, host in world.coordinators.items() if host.leader is None]
    mend = scene.cut(link for name in standby for link in both_ways([name], [ETCD]))

    def undo() -> None:
        world.server.compact(world.server.snapshot().revision)
        mend()

    return undo


KINDS = (
    Kind(
        name="etcd_leader_loss",
        group=Group.STORE,
        what="etcd elects another leader: nothing is answered for seconds.",
        sources=("trace: store.leader_loss",),
        hits=Hits.ETCD,
        cost=Cost.NOTHING,
        begin=_away,
        lasts=Lasts(2.0, 10.0),
    ),
    Kind(
        name="etcd_quorum_loss",
        group=Group.STORE,
        what="etcd has no quorum: nothing is answered for minutes.",
        sources=("trace: store.quorum_loss",),
        hits=Hits.ETCD,
        cost=Cost.NOTHING,
        begin=_away,
        lasts=Lasts(60.0, 900.0),
    ),
    Kind(
        name="slow_fsync",
        group=Group.STORE,
        what="etcd's disk is slow. Size: mean of seconds for a write.",
        sources=("trace: store.slow_fsync",),
        hits=Hits.ETCD,
        cost=Cost.NOTHING,
        begin=_slow,
        lasts=Lasts(600.0, 3600.0),
        sizes=(0.05, 1.0),
    ),
    Kind(
        name="late_writes",
        group=Group.STORE,
        what="etcd is so slow that writes land when their sender has given up. Size: mean of seconds for a write.",
        sources=("trace: store.slow_fsync", "case P13"),
        hits=Hits.ETCD,
        cost=Cost.NOTHING,
        begin=_slow,
        lasts=Lasts(60.0, 600.0),
        sizes=(2.0, 6.0),
    ),
    Kind(
        name="unknown_outcomes",
        group=Group.STORE,
        what="Answers of etcd are lost after the write was applied. Size: which share.",
        sources=("trace: store.leader_loss",),
        hits=Hits.ETCD,
        cost=Cost.NOTHING,
        begin=_unknown,
        lasts=Lasts(300.0, 3600.0),
        sizes=(0.05, 0.6),
    ),
    Kind(
        name="quota_full",
        group=Group.STORE,
        what="etcd's space is used up: it reads, and refuses to write.",
        sources=("trace: store.quota_full", "case P16"),
        hits=Hits.ETCD,
        cost=Cost.NOTHING,
        begin=_quota,
        lasts=Lasts(300.0, 1800.0),
    ),
    Kind(
        name="mass_lease_expiry",
        group=Group.STORE,
        what="etcd's leader hangs in its disk while its lease clock runs on: all leases are gone in one instant.",
        sources=("trace: store.mass_lease_expiry", "case P07"),
        hits=Hits.ETCD,
        cost=Cost.NOTHING,
        begin=_expiry,
        lasts=Lasts(30.0, 60.0),
    ),
    Kind(
        name="lease_revoked",
        group=Group.STORE,
        what="Somebody revokes the leader's lease under it.",
        sources=("case P13",),
        hits=Hits.ETCD,
        cost=Cost.NOTHING,
        begin=_revoked,
        lasts=AT_ONCE,
    ),
    Kind(
        name="compaction_under_watch",
        group=Group.STORE,
        what="Watches are cut, and the history they need is compacted before they are back.",
        sources=("trace: store.compaction_under_watch", "trace: store.watch_lag", "case P10"),
        hits=Hits.ETCD,
        cost=Cost.NOTHING,
        begin=_compacted,
        lasts=Lasts(300.0, 3600.0),
    ),
)
