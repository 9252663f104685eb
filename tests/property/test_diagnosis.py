"""What holds for a diagnosis whatever the logs say."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from evertrain.diagnosis.evidence import Capture
from evertrain.diagnosis.naming import origin_of
from evertrain.diagnosis.scoring import without_cause
from evertrain.diagnosis.vocabulary import TREATMENT, FailureClass, NodeAction, Role
from support.evidence import cases, classifier, lines, merged

ALL = [
    case for name in ("field_cases", "reported", "held_out", "later_reported", "last_reported") for case in cases(name)
]
LINES = sorted({line for case in ALL for line in case.log.split("\n") if line.strip()})
VICTIMS = [
    line
    for line in LINES
    if all(
        found.signal.role in {Role.CASCADE, Role.TEARDOWN, Role.CONFIRMATION}
        for found in classifier()._finder.find(lines(line))
    )
    and classifier()._finder.find(lines(line))
]


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=4000), name=st.text(max_size=40))
def test_no_bytes_under_any_name_make_it_raise(data: bytes, name: str) -> None:
    text = data.decode("utf-8", errors="replace")
    verdict = classifier().verdict([Capture(name=name, text=text, origin=origin_of(name))])
    assert verdict.cls in TREATMENT


@settings(max_examples=150, deadline=None)
@given(picked=st.lists(st.sampled_from(LINES), max_size=30), cut=st.integers(min_value=0, max_value=60))
def test_any_mixture_of_lines_cut_anywhere_gives_a_bounded_answer(picked: list[str], cut: int) -> None:
    verdict = merged("\n".join(line[cut:] for line in picked))
    assert 0 <= verdict.attempts_max <= 20
    assert len(verdict.evidence) <= 12
    assert verdict.why


@settings(max_examples=100, deadline=None)
@given(picked=st.lists(st.sampled_from(VICTIMS), max_size=20))
def test_victims_alone_never_act_on_a_node(picked: list[str]) -> None:
    assert merged("\n".join(picked)).node_action in {NodeAction.NONE, NodeAction.WATCH}


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(ALL), seed=st.integers(0, 1000))
def test_the_order_of_captures_does_not_matter(case: object, seed: int) -> None:
    assert isinstance(case, type(ALL[0]))
    captures = [Capture(name=key, text=text, origin=origin_of(key)) for key, text in case.ranks.items()]
    shuffled = list(captures)
    random.Random(seed).shuffle(shuffled)
    assert classifier().verdict(shuffled) == classifier().verdict(captures)


@settings(max_examples=100, deadline=None)
@given(case=st.sampled_from(ALL), more=st.lists(st.sampled_from(VICTIMS), max_size=3))
def test_more_teardown_changes_no_class_that_a_cause_has_given(case: object, more: list[str]) -> None:
    assert isinstance(case, type(ALL[0]))
    plain = merged(case.log)
    teardown = [line for line in more if "closing signal" in line or "ChildFailed" in line or "-15" in line]
    if plain.cls not in {FailureClass.UNKNOWN, FailureClass.NO_FAILURE}:
        assert merged("\n".join([case.log, *teardown])).cls is plain.cls


def test_without_the_cause_a_verdict_is_never_surer() -> None:
    surer = []
    for case in ALL:
        if case.cause:
            whole, rest = merged(case.log), merged(without_cause(case))
            if rest.confidence.level > whole.confidence.level:
                surer.append((case.id, whole.confidence, rest.confidence, rest.rule))
    assert surer == []
