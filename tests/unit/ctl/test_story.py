"""The story of a job: what an operator reads first must not drown in what is as it should be."""

from __future__ import annotations

from evertrain.api.v1 import operator_pb2
from evertrain.ctl.story import ROUTINE_SHOWN, tell

COMMITTED, VERIFIED, EXPIRED = "checkpoint.committed", "checkpoint.verified", "checkpoint.expired"


def _story(*kinds: str) -> list[str]:
    events = [
        operator_pb2.Event(at_s=1e9 + at, kind=kind, text=f"word {at} of {kind}", job="job")
        for at, kind in enumerate(kinds)
    ]
    job = operator_pb2.Job(name="job", submitted_at_s=1e9)
    lines = [line.text for line in tell(job, events, 1e9 + 60)]
    return lines[lines.index("2001-09-09 (UTC)") + 1 : lines.index("", 2)]


def test_many_saves_in_a_row_are_one_line_with_their_counts() -> None:
    told = _story("job.running", *[COMMITTED, VERIFIED] * 10, EXPIRED, "node.unknown")
    assert told[0] == "word 0 of job.running"
    assert "10 committed, 10 read back and verified, 1 expired and removed" in told[1]
    assert told[2:] == ["word 22 of node.unknown"]


def test_what_went_wrong_between_saves_has_a_line_of_its_own_and_parts_them() -> None:
    told = _story(*[COMMITTED] * 5, "checkpoint.doubted", *[COMMITTED] * 4, "checkpoint.cleared", *[VERIFIED] * 6)
    assert [line.split(" of ")[-1] for line in told if line.startswith("word")] == [
        "checkpoint.doubted",
        "checkpoint.cleared",
    ]
    assert [line.split(": ")[1].split(" (")[0] for line in told if line.startswith("checkpoints since")] == [
        "5 committed",
        "4 committed",
        "6 read back and verified",
    ]


def test_a_few_saves_are_told_one_by_one() -> None:
    assert _story(*[COMMITTED] * ROUTINE_SHOWN) == [f"word {at} of {COMMITTED}" for at in range(ROUTINE_SHOWN)]
