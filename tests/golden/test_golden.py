"""Every golden script tells the story it told before, and holds what it promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evertrain.chaos.sim.quiet import hush
from evertrain.chaos.sim.script.play import PROMISES, play
from evertrain.chaos.sim.script.text import read

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "protocol-by-example.md"
SHOWN = re.compile(r"(?<=<!-- script: )(?P<name>[\w-]+) -->\n```text\n(?P<text>.*?)```", re.DOTALL)
SCRIPTS = sorted(HERE.glob("*.txt"))
SCENARIOS = (
    *(f"g{number:02d}" for number in range(1, 19)),
    *("e01", "e02", "e03", "e04", "e06", "e07", "e08", "e10", "e11"),
    *("p01", "p03", "p04", "p05", "p06", "p07", "p10", "p13", "p15", "p16"),
    *("s01", "s04", "s05", "s06"),
)
"""Lessons of the field, and its cases of elasticity, control plane and scheduling."""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(HERE).with_suffix("")))
def test_script_tells_its_story_and_holds_its_promises(path: Path, request: pytest.FixtureRequest) -> None:
    hush()
    played = play(path)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(played.text, encoding="utf-8")
    elif difference := played.difference():
        pytest.fail(f"{difference}\nif this is right: pytest tests/golden --rewrite, and read the diff", pytrace=False)
    if played.unmet:
        pytest.fail("\n".join(map(str, played.unmet)), pytrace=False)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_says_what_it_is_and_promises_something(path: Path) -> None:
    script = read(path)
    assert script.blocks[0].before, "a script begins with a comment: what it is, and what must be true"
    verbs = {command.text.split()[0] for block in script.blocks for command in block.commands}
    assert verbs & set(PROMISES), f"a script needs one of {', '.join(PROMISES)}: the rest can be rewritten away"


def test_every_scenario_has_a_script_or_is_named_as_missing() -> None:
    told = {name for path in SCRIPTS for name in re.findall(r"(?:^|-)([gesp]\d\d)(?=-)", f"{path.stem}-")}
    missing = (HERE / "README.md").read_text(encoding="utf-8").partition("## Not told yet")[2]
    assert [name for name in SCENARIOS if name not in told and f"`{name}`" not in missing] == []
    assert [name for name in told if f"| `{name}` |" in missing] == []


def test_the_page_shows_scripts_as_they_are(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(SHOWN.findall(page)) >= 4
    shown = SHOWN.sub(lambda found: _shown(found["name"]), page)
    if request.config.getoption("--rewrite", default=False):
        PAGE.write_text(shown, encoding="utf-8")
    else:
        assert page == shown, f"{PAGE.name} shows other scripts than there are: pytest tests/golden --rewrite"


def _shown(name: str) -> str:
    text = (HERE / f"{name}.txt").read_text(encoding="utf-8")
    return f"{name} -->\n```text\n{text}```"


def test_the_same_script_twice_is_the_same_history() -> None:
    hush()
    path = HERE / "node-killed.txt"
    assert play(path).digest == play(path).digest
