"""Every command against a real gRPC server: what is shown at 80 columns, what JSON it gives, how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evertrain.api.v1 import operator_pb2
from evertrain.ctl.plain import plain
from support.operator import OperatorServer, World, a_job, a_node, an_event

from .conftest import Ctl

READS = [
    ("jobs",),
    ("jobs", "--all"),
    ("job", "tiny-lm"),
    ("nodes",),
    ("checkpoints", "tiny-lm"),
    ("events",),
    ("story", "tiny-lm"),
    ("version",),
    ("wait", "done"),
    ("cancel", "tiny-lm", "--reason", "wrong learning rate"),
    ("drain-node", "n2", "--reason", "XID 79"),
    ("undrain-node", "n2"),
]
COMMANDS = [
    *("submit", "jobs", "job", "wait", "cancel", "logs", "events", "story"),
    *(f"checkpoints {verb}" for verb in ("verify", "pin", "unpin", "rollback", "export")),
    *("nodes", "drain-node", "undrain-node", "up", "down", "doctor", "version"),
]
LONG = "rank 5 on n3 was killed by SIGKILL; " * 4


@pytest.fixture(autouse=True)
def ended_job(server: OperatorServer) -> None:
    """A job that has succeeded, and long reasons."""

    def how(world: World) -> None:
        world.jobs["done"] = a_job("done", state=operator_pb2.JOB_STATE_SUCCEEDED, reason=LONG)
        world.nodes["n3"] = a_node("n3", health=operator_pb2.NODE_HEALTH_UNKNOWN, reason=LONG)
        world.events.append(an_event(4, LONG, node="n3"))

    server.change(how)


@pytest.mark.parametrize("arguments", READS, ids=" ".join)
def test_output_fits_80_columns_without_colour(ctl: Ctl, arguments: tuple[str, ...]) -> None:
    ran = ctl(*arguments)
    assert ran.code == 0, ran
    assert ran.err == ""
    assert "\x1b" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert not [line for line in ran.out.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize("arguments", READS, ids=" ".join)
def test_json_is_whole_and_on_standard_output_only(ctl: Ctl, arguments: tuple[str, ...]) -> None:
    ran = ctl(*arguments, "-o", "json")
    assert ran.code == 0, ran
    assert ran.err == ""
    documents = (
        [json.loads(line) for line in ran.out.splitlines()] if arguments[0] in ("events", "wait") else [ran.json]
    )
    assert documents
    assert all(isinstance(document, dict) for document in documents)


def test_json_keeps_the_names_and_types_of_the_proto(ctl: Ctl) -> None:
    job = ctl("job", "tiny-lm", "-o", "json").json
    assert list(job) == [field.name for field in operator_pb2.Job.DESCRIPTOR.fields]
    assert job["state"] == "running"
    assert job["step"] == 1200
    assert job["loss"] == pytest.approx(2.3121)
    assert job["spec"]["args"] == ["--steps", "1000"]
    assert job["members"][3] == {
        "node": "n4", "rank_first": 6, "workers": 2, "group": "running", "reachable": False, "step": 1203
    }  # fmt: skip
    assert job["history"][1]["phases"]["total_ms"] == 243
    assert job["checkpoints"][0]["state"] == "verified"


def test_an_absent_number_is_null_and_a_new_enum_value_is_no_error() -> None:
    job = operator_pb2.Job(name="x")
    assert plain(job)["loss"] is None
    assert plain(job)["tokens"] is None
    job.MergeFromString(bytes([4 << 3, 99]))  # a number that this version of the proto does not name
    assert plain(job)["state"] == "unknown-99"


def test_a_pipe_gets_one_line_for_each_row(ctl: Ctl) -> None:
    ran = ctl("nodes", columns="")
    assert len(ran.out.splitlines()) == 5
    assert LONG.strip() in ran.out


def test_options_stand_before_or_after_the_command(ctl: Ctl) -> None:
    before, after = ctl("--output", "json", "jobs"), ctl("jobs", "--output", "json")
    assert before.out == after.out
    assert before.json["jobs"][0]["name"] == "tiny-lm"


def test_jobs_lists_ended_ones_on_request(ctl: Ctl) -> None:
    assert "done" not in ctl("jobs").out
    assert "done" in ctl("jobs", "--all").out
    assert "no jobs" in ctl("jobs").out or "tiny-lm" in ctl("jobs").out


def test_job_shows_the_state_the_reason_and_what_happens_next(ctl: Ctl) -> None:
    out = ctl("job", "tiny-lm").out
    for part in (
        r"State +running since 2026-09-21 14:13:20Z",
        r"Reason +generation 2 trains on n1",
        r"Next +nothing: it runs until its script ends",
        r"Progress +step 1,200, loss 2\.312, 9,830,400 tokens, 8 steps done again",
        r"n4 +6-7 +running +1203 +unknown",
        r"2 +25 +3 +12 +105 +41 +57 +243 +8 +1000",
        r"1000 +1 +verified +- +123MiB",
    ):
        assert re.search(part, out), part


def test_story_tells_causes_costs_and_the_present(ctl: Ctl) -> None:
    out = ctl("story", "tiny-lm", columns="").out
    for part in (
        "Story of tiny-lm",
        "2026-09-21 (UTC)",
        "13:56:43.000Z     +1s  n2: rank 2 was killed by SIGKILL at step 1008",
        "Training went on after 243ms (noticing 25ms, deciding 3ms, stopping 12ms, starting 105ms,",
        "It resumed from step 1,000; 8 steps done again.",
        "2 generations, step 1,200 reached; recoveries took 243ms",
        "Next    nothing: it runs until its script ends",
    ):
        assert part in out


def test_events_are_filtered_by_the_coordinator(ctl: Ctl, server: OperatorServer) -> None:
    ran = ctl("events", "--node", "n2", "-o", "json")
    assert [json.loads(line)["sequence"] for line in ran.out.splitlines()] == [3]
    assert ctl("events", "--job", "other").out == "no events\n"


def test_foreign_text_cannot_move_the_cursor(ctl: Ctl, server: OperatorServer) -> None:
    server.change(lambda world: world.jobs["tiny-lm"].MergeFrom(operator_pb2.Job(reason="\x1b[2J\u202egone\nnext")))
    out = ctl("jobs").out + ctl("job", "tiny-lm").out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "\\x1b[2J" in out


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("job", "tiny-ml"), "did you mean 'tiny-lm'?"),
        (("wait", "tiny-ml"), "did you mean 'tiny-lm'?"),
        (("logs", "tiny-ml"), "did you mean 'tiny-lm'?"),
        (("cancel", "tiny-ml"), "did you mean 'tiny-lm'?"),
        (("drain-node", "n11", "--reason", "x"), "did you mean 'n1'?"),
        (("undrain-node", "node7"), "'ctl nodes' lists every node"),
    ],
)
def test_what_does_not_exist_is_exit_4_with_the_nearest_name(ctl: Ctl, arguments: tuple[str, ...], near: str) -> None:
    ran = ctl(*arguments)
    assert ran.code == 4, ran
    assert ran.out == ""
    assert near in ran.err


def test_an_error_in_json_is_one_object_on_standard_error(ctl: Ctl) -> None:
    ran = ctl("job", "tiny-ml", "-o", "json")
    error = json.loads(ran.err)["error"]
    assert (error["code"], error["exit"]) == ("not_found", 4)
    assert error["message"].startswith("no job named tiny-ml")


def test_cancel_says_who_and_why(ctl: Ctl, server: OperatorServer) -> None:
    ran = ctl("cancel", "tiny-lm", "--reason", "wrong learning rate")
    assert ran.out.startswith("tiny-lm: cancelled, cancelled by ")
    (request,) = [each for each in server.requests if isinstance(each, operator_pb2.CancelJobRequest)]
    assert request.reason == "wrong learning rate"
    assert "@" in request.by


def test_drain_carries_the_deadline_and_wants_a_reason(ctl: Ctl, server: OperatorServer) -> None:
    ran = ctl("drain-node", "n2", "--reason", "XID 79", "--deadline", "30m")
    assert ran.out.startswith("n2 is draining: XID 79\n")
    assert server.requests[-1].deadline_s == 1800
    assert ctl("drain-node", "n2").code == 2
    assert ctl("drain-node", "n2", "--reason", "x", "--deadline", "never").code == 2


def test_logs_are_passed_on_byte_by_byte(ctl: Ctl, server: OperatorServer) -> None:
    server.change(lambda world: world.log.extend([b"step 1\n", b"caf\xe9 \x1b[31mred\n", b"no newline"]))
    ran = ctl.run("logs", "tiny-lm")
    assert ran.code == 0
    assert ran.out.startswith("step 1\n")
    assert ran.out.endswith("red\nno newline")
    lines = [json.loads(line) for line in ctl("logs", "tiny-lm", "-r", "3", "-o", "json").out.splitlines()]
    assert lines[0] == {"job": "tiny-lm", "rank": 3, "line": "step 1"}
    assert lines[2]["line"] == "no newline"
    assert ctl("logs", "tiny-lm", "--tail", "1").out == "no newline"


def test_logs_of_a_launcher_are_asked_for_by_node(ctl: Ctl, server: OperatorServer) -> None:
    assert ctl("logs", "tiny-lm", "--launcher", "n2").code == 0
    request = server.requests[-1]
    assert (request.rank, request.node) == (-1, "n2")
    assert ctl("logs", "tiny-lm", "--launcher", "n2", "--rank", "1").code == 2


def test_version_names_the_leader_and_the_store(ctl: Ctl, server: OperatorServer) -> None:
    def how(world: World) -> None:
        world.version.leads = False
        world.version.leader_address = "10.0.0.2:7070"
        world.version.store_state = "etcd is away for 12 s"

    server.change(how)
    out = ctl("version").out
    assert "leader       10.0.0.2:7070" in out
    assert "etcd is away for 12 s" in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("jobs", "--timeout", "soon"), "--timeout 'soon': expected a duration"),
        (("jobs", "--timeout", "0"), "has to be above 0"),
        (("jobs", "--coordinator", "nowhere"), "expected HOST:PORT"),
        (("jobs", "--coordinator", ","), "names nobody"),
        (("jobs", "--coordinator", "10.1.2.3:7070"), "no TLS is configured"),
        (("jobs", "--tls-cert", "x.pem"), "give both --tls-cert and --tls-key"),
        (("jobs", "--tls-ca", "/nonexistent.pem"), "cannot read the CA certificate"),
        (("jobs", "--output", "xml"), "xml"),
        (("jobs", "--nonsense"), "--nonsense"),
        (("jbos",), "jbos"),
        (("logs", "tiny-lm", "--tail", "-1"), "--tail"),
        (("up", "--nodes", "0"), "--nodes 0"),
        (("wait", "tiny-lm", "--deadline", "x"), "--deadline 'x'"),
    ],
)
def test_what_was_typed_wrongly_is_exit_2_and_asks_nobody(
    ctl: Ctl, server: OperatorServer, arguments: tuple[str, ...], part: str
) -> None:
    ran = ctl(*arguments)
    assert ran.code == 2, ran
    assert part in ran.err
    assert server.requests == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(ctl: Ctl, command: str) -> None:
    ran = ctl(*command.split(), "--help")
    assert ran.code == 0
    assert f"  ctl {command}" in ran.out.partition("Examples:")[2]
    assert "--output" in ran.out


def test_the_help_lists_the_exit_codes(ctl: Ctl) -> None:
    out = ctl("--help").out
    assert all(re.search(rf"^ +{code}  \w", out, re.MULTILINE) for code in range(7))
    assert ctl().code in (0, 2)


def test_doctor_says_what_is_wrong_and_what_to_do(ctl: Ctl, server: OperatorServer, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named torch' >&2\nexit 1\n")
    python.chmod(0o700)
    ran = ctl("doctor", "--python", str(python), "--etcd", "127.0.0.1:1", columns="200")
    assert ran.code == 1
    assert re.search(r"^fail  torch .*No module named torch$", ran.out, re.MULTILINE)
    assert "pip install 'torch>=2.4'" in ran.out
    assert re.search(r"^fail  etcd .*Connection refused", ran.out, re.MULTILINE)
    assert re.search(r"^ok    coordinator +127\.0\.0\.1", ran.out, re.MULTILINE)
    assert "error: torch, etcd will not do" in ran.err
    findings: list[dict[str, Any]] = ctl("doctor", "--python", str(python), "-o", "json").json["findings"]
    assert {finding["check"] for finding in findings} >= {"python", "torch", "clock", "/dev/shm", "ulimit", "ports"}
