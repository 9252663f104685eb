"""The language of golden scripts: how it is read, what it holds scenarios to, what it says of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from evertrain.chaos.sim.main import app
from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.script.args import between, duration
from evertrain.chaos.sim.script.errors import Misspelt
from evertrain.chaos.sim.script.play import Played, play
from evertrain.chaos.sim.script.story import drawn_together, names
from evertrain.chaos.sim.script.text import parse

SCRIPT = """\
# Two nodes, one job.
nodes 2
submit a nodes=2
# Comments may stand between commands.
until a running

wait 10s
----
     1.00  an old story

# The end.
"""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    hush()


def played(tmp_path: Path, text: str) -> Played:
    """What comes of a script with this text."""
    path = tmp_path / "x.txt"
    path.write_text(text)
    return play(path)


def after_start(tmp_path: Path, *commands: str) -> Played:
    """What comes of commands once job a runs on two of three nodes; they begin in line 5."""
    return played(tmp_path, "\n".join(["quietly", "nodes 3", "submit a nodes=2", "until a running", *commands]))


def wrong(tmp_path: Path, text: str) -> str:
    """What is said of a command that cannot be understood."""
    with pytest.raises(Misspelt) as caught:
        after_start(tmp_path, text)
    return str(caught.value).removeprefix(f"{tmp_path}/")


# -- text -------------------------------------------------------------------------------


def test_a_script_is_written_as_it_was_read() -> None:
    script = parse(Path("x.txt"), SCRIPT)
    assert script.as_written() == SCRIPT
    assert [[(each.line, each.text) for each in block.commands] for block in script.blocks] == [
        [(2, "nodes 2"), (3, "submit a nodes=2"), (5, "until a running")],
        [(7, "wait 10s")],
    ]


def test_a_story_replaces_the_old_one_and_nothing_else() -> None:
    script = parse(Path("x.txt"), SCRIPT)
    told = script.text([["     0.00  it began"], []])
    assert told == SCRIPT.replace("until a running\n", "until a running\n----\n     0.00  it began\n").replace(
        "----\n     1.00  an old story\n", ""
    )


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("250ms", 0.25), ("1h30m", 5400), ("2d", 172_800)])
def test_lengths_of_time_are_read(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "s", "1h 3m", "-3s"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        duration(text)


def test_ranges_are_read() -> None:
    assert (between("2..4"), between("3")) == ((2, 4), (3, 3))


def test_names_in_a_row_are_drawn_together() -> None:
    assert names(["n10", "n2", "n3", "n1", "n7", "n8"]) == "n1..n3, n7, n8, n10"
    assert drawn_together(["n2", "n3", "n4", "n1"]) == "n2..n4, n1"


# -- promises -----------------------------------------------------------------------------


def test_a_promise_that_does_not_hold_is_told_with_its_place_and_the_script_goes_on(tmp_path: Path) -> None:
    result = after_start(tmp_path, "expect a generation=7", "expect a size=2 state=running", "expect n3 held-by=a")
    assert [str(each).removeprefix(f"{tmp_path}/") for each in result.unmet] == [
        "x.txt:5: expected a generation=7, found 1",
        "x.txt:7: expected n3 held-by=a, found ''",
    ]


def test_a_job_that_is_not_there_meets_no_promise(tmp_path: Path) -> None:
    (unmet,) = after_start(tmp_path, "expect b running").unmet
    assert "expected b state=running, found None" in str(unmet)


def test_what_the_story_must_and_must_not_say(tmp_path: Path) -> None:
    commands = (
        "expect-told 'generation 1 formed'",
        "forbid 'generation 2'",
        "expect-told lost",
        "forbid 'nodes ready'",
    )
    told, forbidden = after_start(tmp_path, *commands).unmet
    assert "x.txt:7: expected the story to say 'lost'" in str(told)
    assert "x.txt:8: the story must not say 'nodes ready', and yet: " in str(forbidden)
    assert str(forbidden).endswith("2 workers, starts from step 0; all nodes ready")


def test_what_does_not_come_about_in_time_is_unmet(tmp_path: Path) -> None:
    commands = ("until a generation>=2 within=30s", "submit b warm=1h prepare=2h", "stabilize within=20s")
    until, settle = after_start(tmp_path, *commands).unmet
    assert "x.txt:5: within 30 s it did not come to: until a generation>=2" in str(until)
    assert "x.txt:7: things did not settle within 20 s" in str(settle)


def test_rewriting_does_not_meet_a_promise(tmp_path: Path) -> None:
    result = after_start(tmp_path, "expect a failed")
    path = tmp_path / "x.txt"
    path.write_text(result.text)
    assert [each.text for each in play(path).unmet] == ["expected a state=failed, found 'running'"]


def test_a_promise_that_holds_everywhere_is_checked_without_being_asked(tmp_path: Path) -> None:
    text = "\n".join(["nodes 3", "submit c nodes=3 prepare=10s", "wait 1s", "stop-launcher n2", "wait 30s"])
    (unmet,) = played(tmp_path, text).unmet
    assert "only a job's own failures are charged to it" in str(unmet)
    assert played(tmp_path, f"{text}\nbreaks 'own failures'").unmet == ()
    (kept,) = after_start(tmp_path, "breaks 'own failures'").unmet
    assert "this is kept now, take the line out: own failures" in str(kept)


# -- the story -------------------------------------------------------------------------------


def test_nodes_that_do_the_same_share_a_line_and_times_begin_with_the_scene(tmp_path: Path) -> None:
    result = after_start(tmp_path, "wait 20s", "", "lose n1,n2", "stabilize")
    first, second = result.stories
    assert first == ()
    assert second[0] == "     0.00  a: workers of generation 1 ended on n1, n2: its node lost power"


def test_checkpoints_share_a_line_while_nothing_else_happens(tmp_path: Path) -> None:
    (_, story) = after_start(tmp_path, "", "wait 10m").stories
    assert [line[11:] for line in story if "checkpoint" in line] == [
        "a: checkpoint of steps 100 to 500 (5) saved and registered and verified; steps 100, 200 expired and removed"
    ]


def test_a_planned_fault_is_told_and_taken_back(tmp_path: Path) -> None:
    (_, story) = after_start(tmp_path, "", "at 30s for 300s agent_pause n2", "wait 1m", "heal", "stabilize").stories
    assert [line[11:] for line in story if "fault" in line] == [
        "fault agent_pause of n2 begins",
        "fault agent_pause of n2 ends",
        "all faults are taken back",
    ]


def test_a_script_is_the_same_to_the_byte_when_played_again(tmp_path: Path) -> None:
    commands = (
        "weather loss=0.2 jitter=5ms twice=0.1",
        "kill-worker n1",
        "wait 5m",
        "kill-coordinator leader",
        "wait 1m",
    )
    first, second = after_start(tmp_path, *commands), after_start(tmp_path, *commands)
    assert (first.digest, first.text) == (second.digest, second.text)


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("loose n2", "x.txt:5: loose: no such verb; there are "),
        ("lose", "x.txt:5: lose: node is missing"),
        ("lose n9", "x.txt:5: lose: 'n9' is no node; there are n1, n2, n3"),
        ("drain n2 deadline=soon", "x.txt:5: drain: deadline: 'soon' is no length of time; write it like"),
        ("drain n2 now", "x.txt:5: drain: what does 'now' mean here?"),
        ("kill-coordinator c7", "x.txt:5: kill-coordinator: 'c7' is no coordinator; use one of c1, c2, leader"),
        ("kill-launcher n3", "x.txt:5: kill-launcher: one launcher on n3 is meant; there: none"),
        ("expect a colour=red", "x.txt:5: expect: 'colour=red' cannot be asked of a; use state, reason, "),
        ("expect a size=two", "x.txt:5: expect: 'size=two': 'two' is no number"),
        ("cut n1 c9", "x.txt:5: cut: 'c9' is no node"),
        ("mend n1 c1", "x.txt:5: mend: nothing is cut there"),
        ("spoil newest a rotten", "x.txt:5: spoil: job a has no checkpoint newest on storage"),
        ("nodes 2", "x.txt:5: nodes: the cluster is built already; use add-node"),
        ("at noon for 3s sigkill n1", "x.txt:5: at: 'at noon for 3s sigkill n1': 'noon' is no length"),
        ("at 60s for 3s bad_luck n1", "no kind of fault is called bad_luck"),
        ("submit 'a", "x.txt:5: No closing quotation"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_would_be_right(tmp_path: Path, command: str, said: str) -> None:
    assert said in wrong(tmp_path, command)


def test_the_cluster_comes_first(tmp_path: Path) -> None:
    with pytest.raises(Misspelt, match="the first command is `nodes`"):
        played(tmp_path, "lose n1")


# -- the command line ---------------------------------------------------------------------------


def test_the_command_shows_differences_and_rewrites_them(tmp_path: Path) -> None:
    path, runner = tmp_path / "x.txt", CliRunner()
    path.write_text(SCRIPT)
    shown = runner.invoke(app, ["script", str(path)])
    assert (shown.exit_code, path.read_text()) == (1, SCRIPT)
    assert "-     1.00  an old story" in shown.output
    assert "+     0.00  coordinator c1 leads with term 1" in shown.output
    rewritten = runner.invoke(app, ["script", "--rewrite", str(path)])
    assert (rewritten.exit_code, "an old story" in path.read_text()) == (0, False)
    assert "every promise holds" in runner.invoke(app, ["script", str(path)]).output


def test_the_command_fails_for_an_unmet_promise_even_when_it_rewrites(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(f"{SCRIPT}expect a failed\n")
    result = CliRunner().invoke(app, ["script", "--rewrite", str(path)])
    assert result.exit_code == 1
    assert f"error: {path}:12: expected a state=failed, found 'running'" in result.output


def test_the_command_lists_what_a_script_can_say() -> None:
    result = CliRunner().invoke(app, ["script", "--verbs"])
    assert result.exit_code == 0
    assert "lose NODES\n    Cut their power" in result.output
