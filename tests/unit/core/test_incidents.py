"""When an incident is opened, counted again, mitigated, resolved and forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evertrain.contract.incident import (
    NODES_MAX,
    TIMELINE_MAX,
    CulpritKind,
    Incident,
    IncidentKind,
    IncidentSeverity,
    IncidentState,
    TimelineKind,
)
from evertrain.contract.jobspec import RetryPolicy
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.ids import Instant, NodeName
from evertrain.controlplane.core.incidents import Sign, resolve, sign
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import JobState, State
from support.world import World, a_spec


@pytest.fixture
def world() -> World:
    """Four nodes and a running job on all of them."""
    world = World()
    world.add("n1", "n2", "n3", "n4")
    world.submit()
    world.train(25, save=True)
    return world


def only(world: World) -> Incident:
    """The one incident there is."""
    (incident,) = world.state.incidents.values()
    return incident


def kinds(incident: Incident) -> list[TimelineKind]:
    """What its timeline tells of, in order."""
    return [entry.kind for entry in incident.timeline]


def test_a_worker_that_dies_opens_an_incident_that_says_what_is_missing(world: World) -> None:
    world.fail_worker("n3")
    incident = only(world)
    assert (incident.id, incident.kind) == ("INC-1", IncidentKind.UNKNOWN_FAILURE)
    assert (incident.severity, incident.state) == (IncidentSeverity.INFO, IncidentState.OPEN)
    assert incident.title.startswith("rank 3 on n3 was killed by SIGKILL")
    assert incident.cause == ""
    assert incident.missing == ("why the workers failed: see `ctl logs job`",)
    assert f"INC-1 (unknown-failure, info): {incident.title}" in world.story()


def test_a_lost_node_is_the_culprit_and_left_to_a_person(world: World) -> None:
    world.kill_node("n3")
    incident = only(world)
    assert (incident.kind, incident.severity) == (IncidentKind.NODE_LOSS, IncidentSeverity.WARNING)
    assert (incident.culprit, incident.nodes) == (CulpritKind.NODE, ("n3",))
    assert incident.cause.startswith("node n3 lost: ")
    assert incident.to_do == ("find out what happened to n3",)


def test_an_incident_is_mitigated_at_the_first_good_step_and_resolved_after_a_quiet_time(world: World) -> None:
    world.fail_worker("n3")
    assert only(world).state is IncidentState.OPEN
    world.train(26)
    assert only(world).state is IncidentState.MITIGATED
    assert kinds(only(world)) == [TimelineKind.DETECTED, TimelineKind.RECOVERED]
    world.advance(world.policy.incident_quiet_s - 1)
    assert only(world).state is IncidentState.MITIGATED
    world.advance(2)
    incident = only(world)
    assert incident.state is IncidentState.RESOLVED
    assert incident.resolved_at > incident.mitigated_at > incident.opened_at - 1
    assert not world.state.troubles


def test_the_same_within_a_day_reopens_the_incident_as_a_warning(world: World) -> None:
    world.fail_worker("n3")
    world.train(26)
    world.advance(world.policy.incident_quiet_s + 1)
    world.fail_worker("n2")
    incident = only(world)
    assert (incident.id, incident.recurrences) == ("INC-1", 1)
    assert (incident.severity, incident.state) == (IncidentSeverity.WARNING, IncidentState.OPEN)
    assert (incident.mitigated_at, incident.resolved_at) == (0.0, 0.0)
    assert kinds(incident)[-1] is TimelineKind.REPEATED
    assert sum(line.startswith("INC-1 (") for line in world.story()) == 1


def test_a_job_that_failed_for_good_is_critical_and_open_until_one_of_its_name_works(world: World) -> None:
    world.cancel()
    world.settle()
    world.submit(a_spec("tried", retry=RetryPolicy(max_failures=0)))
    world.train(25, job="tried")
    world.fail_worker("n3", job="tried")
    assert world.job("tried").state is JobState.FAILED
    incident = only(world)
    assert (incident.severity, incident.state) == (IncidentSeverity.CRITICAL, IncidentState.OPEN)
    assert incident.title.endswith("job tried failed for good")
    assert "submit job tried again" in incident.to_do[-1]
    world.advance(3600)
    assert only(world).state is IncidentState.OPEN
    world.submit(a_spec("tried"))
    world.train(25, job="tried")
    world.advance(world.policy.incident_quiet_s + 1)
    assert only(world).state is IncidentState.RESOLVED


def test_a_job_that_fails_for_good_without_a_gang_reopens_what_it_had_within_a_day(world: World) -> None:
    world.fail_worker("n3")
    world.cancel()
    world.settle()
    assert only(world).state is IncidentState.RESOLVED
    world.launcher_error = "No module named 'torch'"
    world.submit()
    assert world.job().state is JobState.FAILED
    incident = only(world)
    assert (incident.id, incident.recurrences) == ("INC-1", 1)
    assert (incident.severity, incident.state) == (IncidentSeverity.CRITICAL, IncidentState.OPEN)


def test_incidents_of_a_cancelled_job_are_resolved(world: World) -> None:
    world.fail_worker("n3")
    world.cancel()
    world.settle()
    assert world.job().state is JobState.CANCELLED
    assert only(world).state is IncidentState.RESOLVED


def a_sign(key: str, *nodes: str) -> Sign:
    """A sign with a key."""
    return Sign(
        kind=IncidentKind.NODE_LOSS,
        key=key,
        severity=IncidentSeverity.WARNING,
        title=f"sign of {key}",
        nodes=tuple(NodeName(node) for node in nodes),
    )


def a_draft(state: State | None = None, *, at: float = 100.0, most: int = 500) -> Draft:
    """A decision in the making."""
    return Draft(state or State(cluster_id="c"), now=Instant(at), policy=Policy(incidents_max=most))


def test_the_same_after_more_than_a_day_is_a_new_incident() -> None:
    draft = a_draft()
    sign(draft, a_sign("a"))
    resolve(draft, draft.state.incidents["INC-1"], "mended")
    later = a_draft(draft.state, at=100.0 + Policy().incident_again_s + 1)
    sign(later, a_sign("a"))
    assert sorted(later.state.incidents) == ["INC-1", "INC-2"]
    assert dict(later.state.troubles) == {"a": "INC-2"}


def test_resolved_incidents_are_forgotten_first_and_numbers_are_never_given_twice() -> None:
    draft = a_draft(most=2)
    for key in ("a", "b"):
        sign(draft, a_sign(key))
    resolve(draft, draft.state.incidents["INC-2"], "mended")
    sign(draft, a_sign("c"))
    assert sorted(draft.state.incidents) == ["INC-1", "INC-3"]
    sign(draft, a_sign("d"))
    assert sorted(draft.state.incidents) == ["INC-3", "INC-4"], "none is resolved: the oldest goes"
    assert dict(draft.state.troubles) == {"c": "INC-3", "d": "INC-4"}
    assert set(draft.decision().incidents) == {"INC-1", "INC-2", "INC-3", "INC-4"}


def test_what_recurs_without_end_stays_bounded_and_keeps_its_beginning() -> None:
    draft = a_draft()
    for at in range(TIMELINE_MAX + NODES_MAX):
        sign(draft, replace(a_sign("a", f"n{at}"), title=f"time {at}"))
    incident = draft.state.incidents["INC-1"]
    assert len(incident.timeline) == TIMELINE_MAX
    assert (incident.timeline[0].text, incident.timeline[-1].text) == (
        "time 0",
        f"time {TIMELINE_MAX + NODES_MAX - 1}",
    )
    assert len(incident.nodes) == NODES_MAX
    assert incident.recurrences == TIMELINE_MAX + NODES_MAX - 1


def test_indexes_made_from_scratch_are_those_that_were_kept(world: World) -> None:
    world.fail_worker("n3")
    world.kill_node("n2")
    assert world.state.troubles
    assert world.state.indexed().troubles == world.state.troubles
    assert world.state.durable().incidents == world.state.incidents
