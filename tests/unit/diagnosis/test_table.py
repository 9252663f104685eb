"""The table of signals: what was shipped holds together, a fleet's file changes it, a bad file is refused whole."""

from __future__ import annotations

import re

import pytest

from evertrain.diagnosis.evidence import Capture
from evertrain.diagnosis.finding import Finder, needles
from evertrain.diagnosis.prefixes import masked
from evertrain.diagnosis.reading import read
from evertrain.diagnosis.table import BadTable, difference, overlaid, parse, shipped
from evertrain.diagnosis.vocabulary import NodeAction, Role

NEW = """
[signals.fabric-tool]
about = 'our fabric tool found a bad link'
priority = 5
patterns = ['FABRICTOOL: bad link (?P<port>\\d+)']
class = 'fabric-link'
role = 'root'
blames = 'node'
"""


def signal_of(text: str, table: object = None) -> str | None:
    finder = Finder(shipped() if table is None else table)  # type: ignore[arg-type]
    found = finder.find(read([Capture(name="x", text=text)]))
    return found[0].signal.id if found else None


def test_every_shipped_example_is_found_as_the_same_kind_of_thing() -> None:
    finder, table = Finder(shipped()), shipped()
    wrong = []
    for signal in table.signals.values():
        if not signal.example or (signal.probe and not signal.patterns):
            continue
        found = finder.find(read([Capture(name="x", text=signal.example)]))
        acting = {NodeAction.DRAIN, NodeAction.CORDON, NodeAction.DIAGNOSE}
        # Another row may be the first to match, but none that would take a node out where this one would not.
        if not found or (found[0].signal.node_action in acting and signal.node_action is NodeAction.NONE):
            wrong.append((signal.id, [each.signal.id for each in found]))
    assert [each for each in wrong if each[0] not in KNOWN_SHARED] == []


KNOWN_SHARED = {"xid-45"}
"""Its example names the Xid that it followed, and is taken for that one."""


def test_what_a_pattern_needs_is_in_every_text_that_it_matches() -> None:
    finder = Finder(shipped())
    for signal in shipped().signals.values():
        for line in read([Capture(name="x", text=signal.example or " ")]):
            low = masked(line.text).lower()
            for pattern in finder._patterns:
                if pattern.expression.search(line.text):
                    sure = not pattern.needles or any(text in low for text in pattern.needles)
                    assert sure, (pattern.expression.pattern, pattern.needles)


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (r"Watchdog caught \w+", ("watchdog caught ",)),
        (r"(?i)No space left", ("no space left",)),
        (r"colou?r red", ("r red",)),
        (r"one|two", ("one", "two")),
        (r"one|t", ()),
        (r"(?:x|y)fixed", ("fixed",)),
        (r"(?i)\b(?:first|second)\b \d", ("first", "second")),
        (r"(?:first|second)?\d tail", (" tail",)),
        (r"\[Errno 28\]", ("[errno 00]",)),
        (r"ab{2,3}tail", ("tail",)),
        (r"[^\]]+\) end", (") end",)),
        (r"(?!never)x", ()),
    ],
)
def test_needles_are_texts_of_which_every_match_holds_one(pattern: str, wanted: tuple[str, ...]) -> None:
    assert needles(pattern) == wanted


def test_a_fleet_adds_changes_and_switches_off_signals_and_the_difference_says_so() -> None:
    text = NEW + "[signals.xid-94]\nnode_action = 'drain'\n[signals.eio]\nenabled = false\n"
    table = overlaid(shipped(), text, "fleet.toml")
    assert signal_of("FABRICTOOL: bad link 7", table) == "fabric-tool"
    assert table.signals["xid-94"].node_action is NodeAction.DRAIN
    assert signal_of("OSError: [Errno 5] Input/output error", table) != "eio"
    assert signal_of("OSError: [Errno 5] Input/output error") == "eio"
    changes = {(each.signal, each.field): (each.before, each.after) for each in difference(shipped(), table)}
    assert changes == {
        ("fabric-tool", "signal"): ("absent", "added"),
        ("xid-94", "node_action"): ("restart-before-reuse", "drain"),
        ("eio", "enabled"): ("True", "False"),
    }
    assert table.version.startswith(f"{shipped().version}+")
    assert difference(shipped(), shipped()) == ()


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("x = [", 1, "no TOML"),
        (NEW + "[signals.eio]\nrole = 'culprit'\n", 9, "use one of root"),
        (NEW + "\n[signals.eio]\ncolour = 'red'\n", 10, "unknown field 'colour'"),
        ("[signals.own]\nabout = 'x'\n", 1, "lacks priority, class, role, blames"),
        ("[signals.eio]\npatterns = ['(']\n", 1, "no regular expression"),
        ("[signals.eio]\npatterns = ['x*']\n", 1, "matches empty text"),
        ("[signals.eio]\nattempts_max = 1000\n", 1, "use a number from 0 to 20"),
        ("[signals.eio]\npriority = true\n", 1, "use a number"),
        ("[signals.gloo-closed]\nnode_action = 'drain'\n", 1, "what a victim says may not drain a node"),
        ("[signals.EIO]\nenabled = false\n", 1, "no id of a signal"),
        ("[other]\n", 1, "'other' is unknown"),
        ("signals = 3\n", 1, "signals is no table"),
    ],
)
def test_a_bad_file_is_refused_whole_with_its_line(text: str, line: int, part: str) -> None:
    with pytest.raises(BadTable) as caught:
        overlaid(shipped(), text, "fleet.toml")
    assert re.match(rf"fleet\.toml:{line}\b", str(caught.value)), str(caught.value)
    assert part in str(caught.value)


def test_a_whole_table_needs_a_version() -> None:
    with pytest.raises(BadTable, match="no version"):
        parse(NEW, "own.toml")
    assert set(parse("version = '1'\n" + NEW, "own.toml").signals) == {"fabric-tool"}


def test_victims_never_take_a_node_out_in_what_was_shipped() -> None:
    quiet = {NodeAction.NONE, NodeAction.WATCH}
    loud = [
        signal.id
        for signal in shipped().signals.values()
        if signal.role in {Role.CASCADE, Role.TEARDOWN, Role.NOTE} and signal.node_action not in quiet
    ]
    assert loud == []


def test_ids_of_the_taxonomy_that_were_joined_are_still_found() -> None:
    assert shipped().get("ckpt-safetensors") is shipped().signals["ckpt-corrupt-zip"]
    assert shipped().get("no-such-signal") is None
