"""The house rules hold in every file of the repository, and the checker itself finds what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import tidy

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = ("proto", "controlplane", "agent", "trainer", "chaos")
FOLDERS = (*COMPONENTS, "tests", "bench", "tools", "examples")


def sources() -> list[Path]:
    """Every Python file that people write, relative to the repository."""
    found = [path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if "_pb2" not in path.name and "__pycache__" not in path.parts)


def test_every_file_keeps_the_house_rules() -> None:
    findings = [finding for path in sources() for finding in tidy.check_source(path, (ROOT / path).read_text())]
    findings += tidy.check_layout(ROOT, COMPONENTS)
    if findings:
        pytest.fail("\n".join(["house rules broken:", *map(str, findings)]), pytrace=False)


def messages(text: str, path: str = "agent/evertrain/agent/x.py") -> list[str]:
    """What the checker says of a module with ``text``."""
    return [finding.message for finding in tidy.check_source(Path(path), f'"""A module."""\n{text}')]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("import pickle\npickle.loads(b'')", "pickle.loads, use JSON"),
        ("import subprocess\nsubprocess.run('ls', shell=True)", "use a list of arguments"),
        ("import os\nos.system('ls')", "os.system, use subprocess.run"),
        ("async def f():\n    asyncio.create_task(g())", "asyncio.TaskGroup"),
        ("try:\n    f()\nexcept Exception:\n    pass", "except Exception passed over"),
        ("with contextlib.suppress(Exception):\n    f()", "suppress(Exception)"),
        ("blacklist = []", "use quarantine"),
        ("class SlaveNode:\n    pass", "use node, worker or follower"),
        ("def f(master_node):\n    pass", "use leader"),
        ("def f(timeout: float):\n    pass", "timeout_s"),
        ("torch.load('x')", "weights_only=True"),
        ("def f(a, b, c, d, e, f):\n    pass", "6 positional parameters"),
        ("def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
        ("class C:\n" + "    x = 1\n" * 250, "class C has 251 lines"),
        ("x = 1\n" * 600, "module of 602 lines"),
    ],
)
def test_what_breaks_a_rule_is_found_with_its_replacement(text: str, part: str) -> None:
    assert [message for message in messages(text) if part in message], messages(text)


@pytest.mark.parametrize(
    "text",
    [
        "master_addr, master_port = 'a', 1",
        "MASTER_PORT = 'MASTER_PORT'",
        "async def f():\n    async with asyncio.TaskGroup() as group:\n        group.create_task(g())",
        "try:\n    f()\nexcept OSError:\n    pass",
        "class C:\n    def f(self, a, b, c, d, e, *, g):\n        pass",
        "torch.load('x', weights_only=True)",
    ],
)
def test_what_keeps_the_rules_is_not_reported(text: str) -> None:
    assert messages(text) == []


def test_a_sleeping_test_is_found_and_a_yielding_one_is_not() -> None:
    text = "async def test_x():\n    await asyncio.sleep({})\n    time.sleep(1)"
    assert len(messages(text.format(0.1), "tests/unit/test_x.py")) == 2
    assert len(messages(text.format(0), "tests/unit/test_x.py")) == 1
    assert messages(text.format(0.1)) == []


def test_a_module_without_a_docstring_is_found() -> None:
    findings = tidy.check_source(Path("tools/x.py"), "x = 1\n")
    assert [str(finding) for finding in findings] == [
        "tools/x.py:1: error: module without a docstring: say in one line what it is for, and what not"
    ]


def test_a_layout_that_breaks_the_namespace_is_found(tmp_path: Path) -> None:
    package = tmp_path / "agent" / "evertrain" / "agent"
    (package / "inner").mkdir(parents=True)
    for file in (tmp_path / "agent" / "stray.py", package.parent / "__init__.py", package / "inner" / "x.py"):
        file.write_text("")
    (package / "__init__.py").write_text("")
    assert [str(finding).split(": error: ")[0] for finding in tidy.check_layout(tmp_path, ("agent",))] == [
        "agent/stray.py:1",
        "agent/evertrain/__init__.py:1",
        "agent/evertrain/agent:1",  # no py.typed
        "agent/evertrain/agent/inner:1",  # no __init__.py
    ]
