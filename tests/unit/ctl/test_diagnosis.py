"""ctl classify and ctl rules: from files to words and exit codes, without a coordinator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evertrain.ctl.main import app
from support.evidence import DATA, timed_out

FLEET = "[signals.xid-94]\nnode_action = 'drain'\n"


def run(*arguments: str, text: str | None = None) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments), input=text, env={"COLUMNS": "200"})
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def incident(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "dmesg@gpu-a03").write_text("NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n")
    (tmp_path / "run" / "rank6.log").write_text("step 1\nRuntimeError: CUDA error: unspecified launch failure\n")
    (tmp_path / "run" / "rank0.log").write_text(timed_out(0, 991) + "\n")
    return tmp_path / "run"


def test_a_folder_is_one_failure_told_cause_first_with_who_what_to_do_and_the_lines(incident: Path) -> None:
    code, out, _ = run("classify", str(incident))
    first, *rest = out.splitlines()
    assert code == 0
    assert first == "gpu-a03/0000:06:00: Xid 79: GPU has fallen off the bus."
    text = "\n".join(rest)
    assert "Drain gpu-a03: reboot." in text
    assert f"{incident}/dmesg@gpu-a03:1: NVRM: Xid" in text
    assert f"{incident}/rank6.log:2: RuntimeError" in text


def test_the_same_as_json_has_every_field(incident: Path) -> None:
    code, out, _ = run("classify", str(incident), "-o", "json")
    verdict = json.loads(out)
    assert code == 0
    assert verdict["cls"] == "hardware-gpu"
    assert verdict["culprit"] == {"kind": "gpu", "names": ["gpu-a03/0000:06:00"]}
    assert (verdict["job_action"], verdict["node_action"]) == ("retry-exclude", "drain")


def test_an_unknown_cause_ends_with_1_and_says_what_is_missing() -> None:
    code, out, _ = run("classify", "-", text="[4] ncclRemoteError: A call failed possibly due to a network error\n")
    assert code == 1
    assert out.startswith("Probably: only consequences are here")
    assert "Not here, and would settle it" in out


def test_logs_without_a_failure_end_with_0() -> None:
    code, out, _ = run("classify", "-", text="[0] step 1 loss 2.0\n[0] step 2 loss 1.9\n")
    assert (code, out.splitlines()[0]) == (0, "No failure: nothing in these logs says that anything failed.")


@pytest.mark.parametrize("arguments", [("classify", "/no/such/log"), ("rules", "test", "/no/such/cases")])
def test_a_path_that_is_not_there_is_invalid_input(arguments: tuple[str, ...]) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert "no such" in err.lower()


def test_a_bad_rules_file_is_refused_with_its_line(incident: Path, tmp_path: Path) -> None:
    rules = tmp_path / "fleet.toml"
    rules.write_text("[signals.eio]\nrole = 'culprit'\n")
    code, _, err = run("classify", str(incident), "--rules", str(rules))
    assert code == 2
    assert f"{rules}:1" in err


def test_a_fleets_file_is_compared_and_used(tmp_path: Path) -> None:
    rules = tmp_path / "fleet.toml"
    rules.write_text(FLEET)
    code, out, _ = run("rules", "diff", str(rules), "-o", "json")
    assert code == 0
    assert json.loads(out) == [
        {"signal": "xid-94", "field": "node_action", "before": "restart-before-reuse", "after": "drain"}
    ]
    text = "NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error\n"
    assert json.loads(run("classify", "-", "-o", "json", text=text)[1])["node_action"] == "restart-before-reuse"
    assert json.loads(run("classify", "-", "--rules", str(rules), "-o", "json", text=text)[1])["node_action"] == "drain"


def test_rules_are_scored_on_labelled_logs_and_fail_below_a_share_or_on_an_unsafe_action(tmp_path: Path) -> None:
    code, out, _ = run("rules", "test", str(DATA / "field_cases.jsonl"))
    assert code == 0
    assert "all: " in out
    assert "0 unsafe actions" in out
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(
        '{"id": "1", "log": "NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.", '
        '"expected_class": "user_code", "expected_action": "STOP_NOTIFY"}\n'
    )
    code, _, err = run("rules", "test", str(wrong), "--min", "0")
    assert code == 1
    assert "1 unsafe actions" in err
    wrong.write_text("{}\n")
    assert run("rules", "test", str(wrong))[0] == 2


def test_signals_are_shown_one_by_one_and_all() -> None:
    code, out, _ = run("rules", "show", "xid-79")
    assert code == 0
    assert "node_steps   reboot" in out
    assert len(run("rules", "show")[1].splitlines()) > 300
    assert run("rules", "show", "no-such")[0] == 4
