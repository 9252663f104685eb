"""Every kind of fault does what it says, can be taken back, and leaves a cluster that comes right in time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pytest

from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.check.checkers import Checkers
from evertrain.chaos.sim.check.liveness import bound_s, missing
from evertrain.chaos.sim.draw import Size, draw_plan, draw_setup
from evertrain.chaos.sim.faults import KINDS, Cost, Hits, Kind
from evertrain.chaos.sim.faults.inject import Injector, UnknownKind
from evertrain.chaos.sim.history import FaultBegan, say
from evertrain.chaos.sim.loop import run
from evertrain.chaos.sim.plan import Planned, read_all
from evertrain.chaos.sim.process import EPOCH
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.site import Program
from evertrain.chaos.sim.world import Options, World
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, NodeRange, RetryPolicy

BEGINS_S = 200.0
WATCHED_S = 700.0
"""After the beginning, when everything is taken back."""
SAVES_S = 60.0

Probe = Callable[[World], bool]


@dataclass(frozen=True, kw_only=True)
class Shows:
    """How a kind of fault shows: by lines of the history, by fewer saves, by a probe, or by any other course."""

    line: str = ""
    times: int = 1
    slower: bool = False
    probe: Probe | None = None
    lasts_s: float = 60.0
    size: float | None = None
    also: str = ""
    """Faults that bring it to light."""


def lines(pattern: str, times: int = 1, *, lasts_s: float = 60.0, size: float | None = None, also: str = "") -> Shows:
    """It shows in the history."""
    return Shows(line=pattern, times=times, lasts_s=lasts_s, size=size, also=also)


def slower(lasts_s: float = 300.0, *, size: float | None = None) -> Shows:
    """Fewer checkpoints are saved."""
    return Shows(slower=True, lasts_s=lasts_s, size=size)


def another_course(lasts_s: float = 60.0, *, size: float | None = None, also: str = "") -> Shows:
    """What happens differs from what happens without it."""
    return Shows(lasts_s=lasts_s, size=size, also=also)


def clock_off(world: World) -> bool:
    """A coordinator's clock is wrong by more than a tenth of a second."""
    true = EPOCH + world.site.now()
    return any(abs(host.clock.now() - true) > 0.1 for host in world.coordinators.values())


def journal_behind(world: World) -> bool:
    """An agent remembers what its journal does not say."""
    agents = [(node.disk, node.agent) for node in world.nodes.values() if node.agent is not None]
    return any(disk.journal != agent.state.memory for disk, agent in agents)


def slots_missing(world: World) -> bool:
    """The leader knows of a node with fewer slots than the others."""
    return world.leader is not None and any(node.slots < 8 for node in world.leader.state.nodes.values())


def power_off(world: World) -> bool:
    """A node has no power."""
    return not all(node.powered for node in world.nodes.values())


UNKNOWN = "node.unknown"
NEW_LEADER = "leads with term 2"
A_DEATH = "at 201s for 0s sigkill a/1"
SHOWS = {
    "sigkill": lines("WorkersEnded.*exit -9"),
    "segfault": lines("WorkersEnded.*exit -11"),
    "abort": lines("WorkersEnded.*exit -6"),
    "exit_code": lines("WorkersEnded.*exit 3"),
    "python_exception": lines("WorkersEnded.*KeyError"),
    "oom_kill": lines("WorkersEnded.*exit -9"),
    "sigstop": lines("stood still for 1.8 s: its process was stopped"),
    "deadlock": slower(),
    "collective_never_joined": slower(),
    "collective_stuck": slower(),
    "dataloader_stall": slower(),
    "slow_rank": slower(size=3.0),
    "xid_13": lines("illegal memory access"),
    "xid_31": lines("illegal memory access"),
    "xid_43": lines("unspecified launch failure"),
    "xid_45": lines("operation not permitted"),
    "xid_94": lines("uncorrectable ECC error"),
    "xid_48": lines("WorkersEnded.*uncorrectable ECC error", 2, lasts_s=400.0),
    "xid_74": lines("WorkersEnded.*unspecified launch failure", 2, lasts_s=400.0),
    "xid_79": lines("WorkersEnded.*no CUDA-capable device", 2, lasts_s=400.0),
    "xid_95": lines("WorkersEnded.*uncorrectable ECC error", 2, lasts_s=400.0),
    "xid_119": slower(),
    "thermal_throttle": slower(size=3.0),
    "gpu_missing": Shows(probe=slots_missing, lasts_s=400.0, size=1.0),
    "nic_down": lines(UNKNOWN),
    "nic_flap": lines(UNKNOWN, lasts_s=300.0),
    "node_partition": lines(UNKNOWN),
    "one_way_partition_up": lines(UNKNOWN),
    "one_way_partition_down": lines(UNKNOWN),
    "data_partition": slower(),
    "switch_loss": lines(UNKNOWN, 2, size=2.0),
    "network_split": lines(f"{UNKNOWN}|{NEW_LEADER}"),
    "packet_loss": another_course(),
    "packet_delay": another_course(),
    "duplication": another_course(also="at 201s for 2s agents_upgraded n1 size=5"),
    "power_loss": lines("its node lost power"),
    "kernel_panic": lines("its node lost power"),
    "reboot": lines("its node is rebooted"),
    "host_freeze": lines(UNKNOWN),
    "disk_full": Shows(probe=journal_behind, also=A_DEATH),
    "disk_slow": lines(UNKNOWN, lasts_s=300.0, size=8.0),
    "mount_hang": slower(),
    "memory_pressure": slower(size=4.0),
    "agent_crash": lines(UNKNOWN),
    "agent_down": lines(UNKNOWN),
    "agents_upgraded": lines(UNKNOWN, 2, size=2.0),
    "agent_pause": lines(UNKNOWN),
    "journal_lost": lines(UNKNOWN),
    "duplicate_name": lines("registered from copy.sim", also="at 190s for 60s agent_down n1"),
    "launcher_killed": lines("LauncherEnded.*SIGKILL"),
    "launcher_stopped": another_course(also=A_DEATH),
    "coordinator_crash": lines(NEW_LEADER),
    "crash_after_commit": lines(NEW_LEADER, lasts_s=300.0),
    "coordinator_pause": lines(NEW_LEADER),
    "coordinator_slow": another_course(also=A_DEATH),
    "headless": lines(NEW_LEADER),
    "rolling_upgrade": lines(NEW_LEADER),
    "cut_from_etcd": lines(NEW_LEADER),
    "cut_from_nodes": lines(UNKNOWN, 2),
    "clock_step": Shows(probe=clock_off),
    "clock_drift": Shows(probe=clock_off, size=0.01),
    "etcd_leader_loss": another_course(10.0, also=A_DEATH),
    "etcd_quorum_loss": lines(NEW_LEADER),
    "slow_fsync": another_course(also=A_DEATH),
    "late_writes": another_course(also=A_DEATH),
    "unknown_outcomes": another_course(also=A_DEATH),
    "quota_full": another_course(also=A_DEATH),
    "mass_lease_expiry": lines(NEW_LEADER),
    "lease_revoked": lines(NEW_LEADER),
    "compaction_under_watch": lines("Loaded coordinator", lasts_s=150.0),
    "torn": lines("checkpoint.doubted.*torn"),
    "rotten": lines("CheckpointRefused.*rotten"),
    "missing_shard": lines("CheckpointRefused.*shard is missing"),
    "checkpoint_deleted": lines("CheckpointRefused.*gone"),
    "rotten_newest": lines("CheckpointRefused.*rotten", 2, size=2.0),
    "all_rotten": lines("starts from step 0", also=A_DEATH),
    "storage_outage": lines("checkpoint.failed", lasts_s=200.0),
    "storage_full": lines("checkpoint.failed.*No space", lasts_s=200.0),
    "storage_hang": slower(),
    "storage_slow": slower(size=30.0),
    "rollback": lines("job.rollback", size=1.0),
    "maintenance_drain": lines("node.drain"),
    "drain_at_once": lines("stopped without a save", size=0.5),
    "drain_storm": lines("node.drain", 2, size=2.0),
    "preemption": Shows(probe=power_off, lasts_s=300.0, size=1.0),
    "lemon_relapse": lines("WorkersEnded.*uncorrectable NVLink error", 2, lasts_s=300.0, size=60.0),
    "wrong_drain": lines("node.undrain"),
    "cancel": lines("job='a.2'"),
    "double_submit": lines("Answered request_id='double-submit", 3),
    "name_taken": lines("Answered.*job a exists"),
    "submit_burst": lines("job.submitted", 4, size=4.0),
    "bad_deploy": lines("kind='job.failed'.*without|kind='job.failed'.*no new step", size=5.0),
    "nan": lines("WorkersEnded.*loss is NaN", 2, size=10.0, lasts_s=300.0),
}
TARGETS = {
    Hits.NODE: "a/0",
    Hits.COORDINATOR: "leader",
    Hits.JOB: "a",
    Hits.ETCD: "etcd",
    Hits.STORAGE: "storage",
    Hits.NETWORK: "network",
    Hits.CLUSTER: "cluster",
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a small cluster went through."""

    lines: tuple[str, ...]
    """From the beginning of the fault to the end of the run, without what tells of faults."""
    during: tuple[str, ...]
    """Up to its healing."""
    probed: bool
    violations: tuple[Violation, ...]
    missing: tuple[str, ...]


def play(plan: tuple[Planned, ...], probe: Probe | None = None) -> Seen:
    """Five nodes, two coordinators, a job that trains and saves; the plan; then calm."""
    hush()

    async def main() -> Seen:
        world = World(Options(seed=3, nodes=5, coordinators=2))
        checkers = Checkers(world)
        told: list[str] = []
        healed_at = BEGINS_S + WATCHED_S
        during: list[str] = []

        def observe(at_s: float, what: object) -> None:
            line = say(what)  # type: ignore[arg-type]
            if at_s >= BEGINS_S - 20.0 and not line.startswith(("Fault", "Healed")):
                told.append(line)
                if at_s <= healed_at:
                    during.append(line)

        world.history.watch(observe)
        injector = Injector(world, plan)
        injector.start()
        world.start()
        spec = JobSpec(
            name="a",
            script="/jobs/train.py",
            nodes=NodeRange(min=3, max=3),
            nproc_per_node=8,
            checkpoint=CheckpointPolicy(dir="/checkpoints", every_steps=int(SAVES_S)),
            retry=RetryPolicy(max_failures=100, max_without_progress=100),
        )
        world.submit(spec, Program(collective_timeout_s=300.0))
        probed = False
        while world.site.now() < healed_at:
            await world.sleep(10.0)
            probed = probed or (probe is not None and probe(world))
        injector.heal()
        until = world.site.now() + bound_s(world)
        await world.sleep(15.0)
        while missing(world) and world.site.now() < until:
            await world.sleep(15.0)
        checkers.finish()
        return Seen(
            lines=tuple(told),
            during=tuple(during),
            probed=probed,
            violations=tuple(checkers.violations),
            missing=tuple(missing(world)),
        )

    return run(main)


@cache
def without(also: str) -> Seen:
    """The same, but for the fault."""
    return play(read_all(also))


def planned(kind: Kind, shows: Shows) -> Planned:
    """The fault of that kind that the small cluster is to meet."""
    size = float(kind.sizes[1]) if shows.size is None else shows.size
    lasts_s = shows.lasts_s if kind.lasts.median_s else 0.0
    return Planned(kind=kind.name, target=TARGETS[kind.hits], at_s=BEGINS_S, lasts_s=lasts_s, size=size)


def saves(seen: Seen) -> int:
    """How many checkpoints were saved before the healing."""
    return sum(line.startswith("CheckpointSaved") for line in seen.during)


@pytest.mark.parametrize("name", KINDS)
def test_a_fault_shows_as_it_says_and_the_cluster_comes_right_after_it(name: str) -> None:
    kind, shows = KINDS[name], SHOWS[name]
    fault = planned(kind, shows)
    seen, calm = play((*read_all(shows.also), fault), shows.probe), without(shows.also)

    assert seen.missing == ()
    assert [f"{each.invariant}: {each.text}" for each in seen.violations] == []
    if shows.slower:
        assert saves(seen) < saves(calm)
    elif shows.probe is not None:
        assert seen.probed
    elif shows.line:
        found = [line for line in seen.lines if re.search(shows.line, line)]
        usual = [line for line in calm.lines if re.search(shows.line, line)]
        assert len(found) >= len(usual) + shows.times
    else:
        assert seen.lines != calm.lines


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.cost is Cost.NOTHING])
def test_a_fault_that_costs_nothing_stops_no_worker_of_a_job_that_runs(name: str) -> None:
    fault = replace(planned(KINDS[name], SHOWS[name]), lasts_s=SHOWS[name].lasts_s)

    seen = play((fault,))

    assert [line for line in seen.lines if line.startswith("WorkersEnded") and "job='a.1'" in line] == []


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.lasts.median_s])
def test_two_of_a_kind_that_overlap_end_independently(name: str) -> None:
    first = replace(planned(KINDS[name], SHOWS[name]), lasts_s=100.0)
    second = replace(first, at_s=first.at_s + 30.0, lasts_s=20.0)

    seen = play((first, second))

    assert seen.missing == ()
    assert [f"{each.invariant}: {each.text}" for each in seen.violations] == []


def test_there_are_kinds_enough_and_each_says_where_it_was_seen() -> None:
    assert len(KINDS) >= 45
    assert set(SHOWS) == set(KINDS)
    for kind in KINDS.values():
        assert kind.sources
        assert kind.what.endswith(".")


def test_two_hundred_seeds_plan_every_kind() -> None:
    size = Size()
    plans = [draw_plan(seed, draw_setup(seed, size), size) for seed in range(1, 201)]

    assert {each.kind for plan in plans for each in plan} == set(KINDS)


def test_a_plan_with_an_unknown_kind_is_refused_before_it_begins() -> None:
    async def main() -> None:
        plan = read_all("at 1s for 1s gremlins n1")
        with pytest.raises(UnknownKind, match="gremlins"):
            Injector(World(Options(seed=1)), plan)

    run(main)


def beginnings(plan: str, *, submits: bool = True, until_s: float = 1_500.0) -> list[tuple[float, str]]:
    """When which fault of a plan began, in a small cluster whose job loses its first node's worker at 400 s."""
    hush()

    async def main() -> list[tuple[float, str]]:
        world = World(Options(seed=5, nodes=3, coordinators=2))
        begun: list[tuple[float, str]] = []
        world.history.watch(
            lambda at_s, what: begun.append((round(at_s, 2), what.kind)) if isinstance(what, FaultBegan) else None
        )
        Injector(world, read_all(plan)).start()
        world.start()
        if submits:
            world.submit(JobSpec(name="a", script="/jobs/train.py", nodes=NodeRange(min=2, max=2)), Program())
        await world.sleep(until_s)
        return begun

    return run(main)


def test_a_fault_that_waits_for_a_phase_begins_in_it() -> None:
    begun = beginnings("at 100s for 1s agent_crash n3 upon=recovery\nat 400s for 0s sigkill a/0")

    assert [kind for _, kind in begun] == ["sigkill", "agent_crash"]
    assert 400.0 < begun[1][0] < 403.0


def test_a_fault_whose_phase_does_not_come_begins_without_it() -> None:
    assert beginnings("at 100s for 1s agent_crash n3 upon=refusal") == [(1_000.0, "agent_crash")]


def test_a_fault_that_finds_nothing_to_hit_waits_and_is_given_up() -> None:
    assert beginnings("at 100s for 0s sigkill a/0", submits=False) == []
    assert beginnings("at 0s for 0s sigkill a/0") == [(10.0, "sigkill")]
