"""Bugs planted on purpose: each is caught by the checker of its promise, and shrinks to the faults that it takes.

The same plans without the bug break nothing, so what is found is the bug.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from evertrain.chaos.sim import coordinators, launchers, nodes
from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.check.checkpoints import RetentionKeepsTheLast
from evertrain.chaos.sim.check.core import CoreHolds
from evertrain.chaos.sim.check.dispatch import CommitBeforeDispatch
from evertrain.chaos.sim.check.fencing import LaunchersHeedFences, OneLeaderCommits
from evertrain.chaos.sim.check.records import WritesStay
from evertrain.chaos.sim.check.requests import AppliedOnce
from evertrain.chaos.sim.check.visibility import HealthyGoesOn
from evertrain.chaos.sim.plan import Planned, read_all
from evertrain.chaos.sim.shrink import Limits, Shrunk, shrink
from evertrain.chaos.sim.tasks import SimTasks
from evertrain.chaos.sim.world import World
from evertrain.contract.launch import Desired, GangOrder
from evertrain.contract.task import TaskKind, TaskOrder
from evertrain.controlplane.core import gang, keeping, requests
from evertrain.controlplane.core.checkpoint import Checkpoint
from evertrain.controlplane.core.ids import Instant
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import Job
from evertrain.controlplane.shell.committer import Committer
from evertrain.controlplane.store import lease, memory
from evertrain.controlplane.store.api import Kind, Revision, Term, Write
from support.checked import SMALL, a_spec, broken, played, watched

Plant = Callable[[pytest.MonkeyPatch], None]

PLAN = read_all(
    """
    at 60s for 30s packet_loss network size=0.02
    at 130s for 0s sigkill a/0 size=1
    at 200s for 20s agent_down n2 size=1
    at 310s for 0s sigkill a/1 size=1
    at 400s for 40s storage_slow storage size=3
    at 520s for 60s cut_from_etcd c2 size=1
    """
)


def a_member(world: World) -> nodes.SimNode:
    """The node of rank 0."""
    gang_now = world.job("a").gang
    assert gang_now is not None, "the job runs"
    return world.nodes[gang_now.nodes[0]]


def shrunk(plan: Sequence[Planned], invariant: str) -> Shrunk:
    """The least of ``plan`` that still breaks the promise."""

    def attempt(part: Sequence[Planned]) -> Sequence[Violation]:
        return played(part, lasts_s=900.0).violations

    first = next(each for each in attempt(plan) if each.invariant == invariant)
    return shrink(plan, first, attempt, Limits(clock=lambda: 0.0, attempts_max=60))


def kinds(plan: Sequence[Planned]) -> list[str]:
    return [each.kind for each in plan]


def test_the_plan_without_a_bug_breaks_nothing() -> None:
    assert not played(PLAN, lasts_s=900.0).violations


# -- stale orders ---------------------------------------------------------------------------------


def orders_come_again(monkeypatch: pytest.MonkeyPatch, *, fenced: bool) -> None:
    """Every order to run comes a second time, 40 s later; without a fence it is obeyed as if it were new."""
    obey = launchers.SimLauncher.obey

    def again(self: launchers.SimLauncher, order: GangOrder) -> None:
        obey(self, order)
        if order.desired is Desired.RUN:
            self._site.later(40.0, partial(late, self, order))

    def late(self: launchers.SimLauncher, order: GangOrder) -> None:
        if not fenced:
            self._fence = (0, 0)
        obey(self, order)

    monkeypatch.setattr(launchers.SimLauncher, "obey", again)


def test_late_orders_are_harmless_where_launchers_heed_their_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    orders_come_again(monkeypatch, fenced=True)
    assert not played(PLAN, lasts_s=900.0).violations


def test_a_launcher_that_accepts_a_stale_generation_is_caught_and_takes_two_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders_come_again(monkeypatch, fenced=False)
    plan = (*PLAN[:2], *read_all("at 140s for 0s sigkill a/1"), *PLAN[2:])
    least = shrunk(plan, LaunchersHeedFences.invariant)
    assert set(kinds(least.plan)) == {"sigkill"}
    assert not least.exhausted


# -- the leader ------------------------------------------------------------------------------------


def test_orders_that_are_sent_before_the_commit_are_caught_and_take_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    commit, tails = Committer.commit, dict[Committer, asyncio.Task[None]]()

    async def pretend(self: Committer, writes: Sequence[Write]) -> None:
        async def after(tail: asyncio.Task[None] | None) -> None:
            if tail is not None:
                await tail
            await commit(self, writes)

        tails[self] = asyncio.get_running_loop().create_task(after(tails.get(self)))

    monkeypatch.setattr(Committer, "commit", pretend)
    least = shrunk(PLAN, CommitBeforeDispatch.invariant)
    assert least.plan == ()


def stale_leaders_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader does not watch its lease, and the store does not compare its term."""
    apply = memory.MemoryServer.apply

    async def keep(_self: lease.Lease) -> str:
        await asyncio.get_running_loop().create_future()
        return "never"

    def unfenced(self: memory.MemoryServer, writes: Sequence[Write], *, term: Term, known: int) -> Revision:
        holder, newest = self._holder, self._term
        self._term = term
        if holder is not None:
            self._holder = replace(holder, deadline=self.clock.monotonic() + 1.0)
        try:
            return apply(self, writes, term=term, known=self.mark.number)
        finally:
            self._term, self._holder = newest, holder

    monkeypatch.setattr(lease.Lease, "keep", keep)
    monkeypatch.setattr(lease.Lease, "check", lambda _self: None)
    monkeypatch.setattr(memory.MemoryServer, "apply", unfenced)


async def leader_sleeps_through_its_lease(world: World) -> None:
    """SIGSTOP for twice the lease, while an agent's session ends; then it goes on as if nothing had been."""
    first, node = world.coordinators["c1"], a_member(world)
    first.process.stop()
    node.kill_agent()
    await world.sleep(2 * world.options.lease_ttl_s)
    node.start_agent()
    await world.sleep(5.0)
    first.process.go_on()
    await world.sleep(30.0)


def test_a_leader_that_sleeps_through_its_lease_does_no_harm() -> None:
    assert not watched(leader_sleeps_through_its_lease).violations


def test_a_stale_leaders_commit_that_the_store_accepts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stale_leaders_commit(monkeypatch)
    assert OneLeaderCommits.invariant in broken(watched(leader_sleeps_through_its_lease))


# -- checkpoints ----------------------------------------------------------------------------------------


def test_retention_that_removes_the_last_verified_one_is_caught_and_takes_no_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def the_newest(job: Job, _policy: Policy, _now: Instant) -> list[Checkpoint]:
        trusted = sorted((each for each in job.checkpoints if each.trusted), key=lambda each: each.order)
        return trusted[-1:] if len(trusted) > job.spec.checkpoint.keep else []

    monkeypatch.setattr(keeping, "to_expire", the_newest)
    least = shrunk(PLAN, RetentionKeepsTheLast.invariant)
    assert least.plan == ()
    assert "its newest good checkpoint, step 200, was marked expired" in least.violation.text
    assert least.violation.job == "a"


def test_an_agent_that_removes_what_no_record_gave_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    do = SimTasks._do

    def and_remove(self: SimTasks, order: TaskOrder, took_s: float) -> None:
        do(self, order, took_s)
        do(self, replace(order, kind=TaskKind.REMOVE), took_s)

    monkeypatch.setattr(SimTasks, "_do", and_remove)
    least = shrunk(PLAN, RetentionKeepsTheLast.invariant)
    assert least.plan == ()
    assert "was removed from storage, its record says committed" in least.violation.text


# -- the store --------------------------------------------------------------------------------------------


async def a_job_is_forgotten(world: World) -> None:
    """The store loses an acknowledged write; then the leader dies, and the next one reads what is left."""
    before, node = dict(world.server._records), a_member(world)
    node.lose_power()
    await world.sleep(20.0)
    world.server._records |= {key: value for key, value in before.items() if key.kind is Kind.JOB}
    world.coordinators["c1"].kill()
    node.boot()
    await world.sleep(60.0)
    world.coordinators["c1"].start()


def test_a_store_that_forgets_an_acknowledged_write_is_caught() -> None:
    checkers = watched(a_job_is_forgotten)
    found = next(each for each in checkers.violations if each.invariant == WritesStay.invariant)
    assert "c2 read revision" in found.text
    assert "job/a" in found.text


# -- requests ---------------------------------------------------------------------------------------------


async def an_answer_is_lost(world: World) -> None:
    """An operator drains a node, hears nothing, and asks again."""
    world.site.network.cut("c1", "desk")
    world.drain("n4")
    await world.sleep(4.0)
    world.site.network.mend("c1", "desk")
    await world.sleep(20.0)


def test_a_request_that_is_sent_again_is_applied_once() -> None:
    assert not watched(an_answer_is_lost).violations


def test_a_request_that_is_applied_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_repeated", lambda _draft, _request_id: False)
    checkers = watched(an_answer_is_lost)
    assert broken(checkers) == [AppliedOnce.invariant]
    assert "request r2 (drain n4) was accepted a second time" in checkers.violations[0].text


# -- visibility -------------------------------------------------------------------------------------------


async def an_agent_is_away(world: World) -> None:
    node = a_member(world)
    node.kill_agent()
    await world.sleep(60.0)
    node.start_agent()


def test_a_gang_outlives_an_agent() -> None:
    assert not watched(an_agent_is_away).violations


def test_a_node_that_is_declared_lost_by_silence_alone_is_caught() -> None:
    impatient = Policy(probe_deadline_s=0.000_001)  # every probe counts as silence before it can be answered
    checkers = watched(an_agent_is_away, replace(SMALL, policy=impatient))
    assert broken(checkers) == [HealthyGoesOn.invariant]
    assert checkers.violations[0].text.startswith("a.1 generation 1 was given up, and nothing was wrong with it")


async def a_node_is_cut_off(world: World) -> None:
    node = a_member(world).name
    for name in world.coordinators:
        world.site.network.cut(node, name)
    await world.sleep(30.0)
    for name in world.coordinators:
        world.site.network.mend(node, name)


def test_a_gang_outlives_a_cut() -> None:
    assert not watched(a_node_is_cut_off).violations


def test_workers_that_are_stopped_because_their_agent_is_cut_off_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    session_over = nodes.SimSession._session_over

    def and_stop(self: nodes.SimSession, stream: coordinators.Stream) -> None:
        session_over(self, stream)
        for launcher in self._node.launchers.values():
            launcher._stop_workers("ordered to stop")

    monkeypatch.setattr(nodes.SimSession, "_session_over", and_stop)
    checkers = watched(a_node_is_cut_off)
    assert HealthyGoesOn.invariant in broken(checkers)
    assert "while the records want them to run" in checkers.violations[0].text


# -- placement --------------------------------------------------------------------------------------------


async def a_second_job(world: World) -> None:
    world.submit(a_spec("b"))
    await world.sleep(60.0)
    world.cancel("b")
    await world.sleep(30.0)


def test_a_second_job_waits_for_its_nodes() -> None:
    assert not watched(a_second_job).violations


def test_two_jobs_on_one_node_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "usable", lambda draft, _job: sorted(draft.state.nodes))
    checkers = watched(a_second_job)
    found = next(each for each in checkers.violations if each.invariant == CoreHolds.invariant)
    assert "n1 belongs to" in found.text
