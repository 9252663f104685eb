"""Plans of faults are text: read, written, refused in sentences; drawn from a seed within their limits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.chaos.sim.draw import FAULTS, KINDS_SHARE, Size, draw_plan, draw_setup
from evertrain.chaos.sim.faults import KINDS
from evertrain.chaos.sim.plan import BadPlan, Phase, Planned, read, read_all, write_all

SECONDS = st.floats(min_value=0.0, max_value=1e7, allow_nan=False)
PLANNED = st.builds(
    Planned,
    kind=st.sampled_from(sorted(KINDS)),
    target=st.sampled_from(["n1", "a/0", "leader", "etcd", "cluster"]),
    at_s=SECONDS,
    lasts_s=SECONDS,
    size=st.floats(allow_nan=False, allow_infinity=False),
    upon=st.none() | st.sampled_from(list(Phase)),
)


@given(st.lists(PLANNED))
def test_a_plan_that_is_written_reads_as_it_was(plan: list[Planned]) -> None:
    assert read_all(write_all(plan)) == tuple(plan)


def test_size_and_phase_may_be_left_out() -> None:
    assert read("at 3600s for 20s node_partition n3") == Planned(
        kind="node_partition", target="n3", at_s=3600.0, lasts_s=20.0
    )


def test_comments_and_empty_lines_are_passed_over() -> None:
    assert read_all("# why\n\n  at 1s for 0s sigkill a/0 upon=recovery\n") == (
        Planned(kind="sigkill", target="a/0", at_s=1.0, upon=Phase.RECOVERY),
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("sigkill n3", "is no planned fault; write: at 3600s"),
        ("at 3600 for 20s sigkill n3", "'3600' is no length; write seconds, like 20s"),
        ("at xs for 20s sigkill n3", "'x' is no number"),
        ("at 1s for 1s sigkill n3 upon=christmas", "is no phase; there are recovery"),
        ("at 1s for 1s sigkill n3 colour=red", "colour is unknown; a fault has size= and upon="),
        ("at 1s for 1s sigkill n3 hard", "'hard' is not understood"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused_with_what_is_wrong(line: str, complaint: str) -> None:
    with pytest.raises(BadPlan, match=complaint):
        read(line)


def test_a_seed_has_some_kinds_only_and_each_seed_others() -> None:
    size = Size()
    plans = [draw_plan(seed, draw_setup(seed, size), size) for seed in range(1, 60)]
    mixes = {frozenset(each.kind for each in plan) for plan in plans}

    assert len(mixes) == len(plans)
    assert max(len(mix) for mix in mixes) <= round(len(KINDS) * KINDS_SHARE)
    assert min(len(plan) for plan in plans) >= FAULTS[0]
    assert max(len(plan) for plan in plans) <= FAULTS[1]


def test_drawn_faults_keep_to_what_their_kind_says() -> None:
    size = Size(nodes=6, hours=2.0)
    for seed in range(1, 100):
        for planned in draw_plan(seed, draw_setup(seed, size), size):
            kind = KINDS[planned.kind]
            assert kind.sizes[0] <= planned.size <= kind.sizes[1]
            assert 0.0 <= planned.lasts_s <= kind.lasts.p99_s
            assert 0.0 < planned.at_s < size.seconds
            assert planned == read(str(planned))


def test_faults_come_in_bursts_and_some_wait_for_a_phase() -> None:
    size = Size()
    plan = [each for seed in range(1, 20) for each in draw_plan(seed, draw_setup(seed, size), size)]
    near = sum(0.0 <= later.at_s - one.at_s < 60.0 for one, later in pairwise(plan))

    assert near > len(plan) / 3
    assert {each.upon for each in plan} == {None, *Phase}


def test_the_cluster_and_its_jobs_are_the_seeds_whatever_faults_are_drawn() -> None:
    assert draw_setup(7, Size(hours=1.0)) == draw_setup(7, Size(hours=24.0))
    assert draw_setup(7, Size()) != draw_setup(8, Size())
