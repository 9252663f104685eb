"""Evidence for tests of the diagnosis: captures from texts, labelled cases, and a verdict in one call."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from evertrain.diagnosis.classify import Classifier
from evertrain.diagnosis.evidence import Capture, Line
from evertrain.diagnosis.labels import Case, parse_cases
from evertrain.diagnosis.naming import origin_of
from evertrain.diagnosis.reading import read
from evertrain.diagnosis.table import shipped
from evertrain.diagnosis.verdicts import Verdict

DATA = Path(__file__).resolve().parents[1] / "data" / "diagnosis"


@cache
def classifier() -> Classifier:
    """One for all tests: it keeps nothing of what it classified."""
    return Classifier(shipped())


def lines(text: str) -> tuple[Line, ...]:
    """The lines of a merged log."""
    return read([Capture(name="log", text=text)])


def merged(text: str) -> Verdict:
    """The verdict on one merged log."""
    return classifier().verdict([Capture(name="log", text=text)])


def parts(**texts: str) -> list[Capture]:
    """Captures by name; ``__`` stands for @ and ``r3`` for rank 3."""
    names = {key: f"rank{key[1:]}" if key[1:].isdecimal() else key.replace("__", "@") for key in texts}
    return [Capture(name=names[key], text=text, origin=origin_of(names[key])) for key, text in texts.items()]


def verdict(**texts: str) -> Verdict:
    """The verdict on several captures."""
    return classifier().verdict(parts(**texts))


@cache
def cases(name: str) -> tuple[Case, ...]:
    """Labelled cases of the test data."""
    file = DATA / f"{name}.jsonl"
    return parse_cases(file.read_text(encoding="utf-8"), file.name)


def timed_out(rank: int, seq: int, *, op: str = "ALLREDUCE", numel: int = 1024) -> str:
    """What the watchdog of a rank says when a collective did not end."""
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) "
        "ran for 600060 milliseconds before timing out."
    )
