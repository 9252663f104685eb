"""Labelled cases from public reports, in every way: merged, by who wrote them, without the cause, disturbed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from evertrain.diagnosis.evidence import Capture
from evertrain.diagnosis.labels import BadCase, Case, parse_cases
from evertrain.diagnosis.naming import origin_of
from evertrain.diagnosis.scoring import POINTS_MAX, Mark, Way, mark, score
from evertrain.diagnosis.vocabulary import NodeAction
from support.evidence import cases, classifier, merged

FILES = ("field_cases", "reported", "held_out", "later_reported", "last_reported")
SHARE_LEAST = 0.97
EVERY = [case for name in FILES for case in cases(name)]
TEARDOWN = (
    "\nWARNING:torch.distributed.elastic.multiprocessing.api:Sending process 899505 closing signal SIGTERM"
    "\n[rank1]:[E P.cpp:698] [Rank 1] To avoid data inconsistency, we are taking the entire process down."
    "\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n  exitcode  : -15 (pid: 5521)"
    "\nsrun: Terminating job step 1.0"
)


def told(marks: tuple[Mark, ...]) -> list[str]:
    return [
        f"{each.case} {each.way}: {each.points}/{POINTS_MAX} {each.unsafe} {each.verdict.cls} {each.verdict.rule}"
        for each in marks
        if each.points < POINTS_MAX
    ]


@pytest.mark.parametrize("name", FILES)
def test_labelled_cases_get_nearly_all_points_and_no_action_is_unsafe(name: str) -> None:
    marks = score(classifier(), cases(name))
    assert [each.case for each in marks if each.unsafe] == []
    share = sum(each.points for each in marks) / (POINTS_MAX * len(marks))
    assert share >= SHARE_LEAST, told(marks)
    assert {each.way for each in marks} == set(Way)


def stamped(log: str) -> str:
    return "\n".join(f"2026-01-05T10:00:00.123456789Z stdout F {line}" for line in log.split("\n"))


def relabelled(form: str) -> Callable[[str], str]:
    return lambda log: re.sub(r"(?m)^\[(\d+)\] ", form, log)


def reversed_writers(log: str) -> str:
    writers: dict[str, list[str]] = {}
    for line in log.split("\n"):
        match = re.match(r"(?:\[[^\]]+\])?", line)
        writers.setdefault(match[0] if match else "", []).append(line)
    return "\n".join("\n".join(of_one) for of_one in reversed(list(writers.values())))


@pytest.mark.parametrize(
    "disturb",
    [
        stamped,
        relabelled(r"\1: "),
        relabelled(r"[rank\1]: "),
        reversed_writers,
        lambda log: log + TEARDOWN,
        lambda log: TEARDOWN.lstrip("\n") + "\n" + log,
        lambda log: log.replace("\n", "\r\n"),
        lambda log: re.sub(r"(?m)^((?:\[\w+\] )?)([A-Za-z.]*(?:Error|Exception)\b.*)$", r"\g<1>ERROR:root:\2", log),
    ],
)
def test_how_a_log_was_gathered_does_not_change_the_class_or_the_actions(disturb: Callable[[str], str]) -> None:
    changed = []
    for case in EVERY:
        plain, other = merged(case.log), merged(disturb(case.log))
        if (plain.cls, plain.job_action, plain.node_action) != (other.cls, other.job_action, other.node_action):
            changed.append((case.id, plain.cls, other.cls))
    assert changed == []


def test_the_order_of_files_does_not_change_the_verdict() -> None:
    for case in EVERY:
        parts = [Capture(name=key, text=text, origin=origin_of(key)) for key, text in case.ranks.items()]
        assert classifier().verdict(parts) == classifier().verdict(reversed(parts))


def test_one_writer_alone_never_leads_to_an_unsafe_action() -> None:
    unsafe = []
    for case in EVERY:
        for key, text in case.ranks.items():
            verdict = classifier().verdict([Capture(name=key, text=text, origin=origin_of(key))])
            done = mark(case, Way.BY_WRITER, verdict)
            # Who hears one rank only may take a node's fault for the program's, but must not be sure of it.
            # F09: without the rank that has the files, a checkpoint on one node's disk looks like an unfinished one.
            if done.unsafe and "blames" not in done.unsafe and case.id != "F09":
                unsafe.append((case.id, key, done.unsafe))
    assert unsafe == []


def test_what_only_victims_say_never_acts_on_a_node() -> None:
    for case in EVERY:
        victims = [line for line in case.log.split("\n") if re.search(r"WorkNCCL|closed by|ncclRemote|SIGTERM", line)]
        verdict = merged("\n".join(victims) + TEARDOWN)
        assert verdict.node_action in {NodeAction.NONE, NodeAction.WATCH}, case.id


def test_a_label_in_plain_form_is_understood_and_a_bad_line_is_named() -> None:
    plain = (
        '{"id": "1", "source": "s", "log": "[2] KeyError: 1", "ranks": {"2": "KeyError: 1"}, '
        '"expected_class": "user_code", "expected_root_cause": "rank 2 raised", "expected_action": "STOP_NOTIFY"}\n'
    )
    (case,) = parse_cases(plain, "cases.jsonl")
    assert isinstance(case, Case)
    assert (case.culprit, case.cause) == ("rank 2", ("2",))
    assert case.actions == {"STOP_NOTIFY"}
    with pytest.raises(BadCase, match=r"cases\.jsonl:2: error"):
        parse_cases(plain + '{"id": "2"}\n', "cases.jsonl")
    with pytest.raises(BadCase, match="no case"):
        parse_cases("\n", "cases.jsonl")
