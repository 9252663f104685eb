"""ctl checkpoints: what is shown, what is asked of the coordinator, and what has to be confirmed first."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from evertrain.api.v1 import operator_pb2
from support.operator import OperatorServer, World

from .conftest import CTL, Ctl


@pytest.fixture(autouse=True)
def several(server: OperatorServer) -> None:
    """A job with checkpoints of all kinds, and saves that fail."""

    def how(world: World) -> None:
        job = world.jobs["tiny-lm"]
        job.spec.checkpoint.dir, job.spec.checkpoint.every_steps = "/srv/ckpt", 100
        job.saves_failed, job.overdue, job.spec.checkpoint.exposed_max_s = 3, True, 3600.0
        job.exposed_since_s = 1_790_000_000.0
        job.checkpoints.add(
            step=1100,
            generation=2,
            path="/srv/ckpt/tiny-lm.1/step-000001100-g2",
            state=operator_pb2.CHECKPOINT_STATE_CORRUPT,
            note="rank-00003.bin: XXH3-128 differs (found by n1, n4)",
            doubts=["n1: differs", "n4: differs"],
            parent="1000@1",
        )
        job.checkpoints.add(step=1200, generation=2, state=operator_pb2.CHECKPOINT_STATE_WRITING)

    server.change(how)


def asked(server: OperatorServer) -> list[operator_pb2.AskCheckpointRequest]:
    return [each for each in server.requests if isinstance(each, operator_pb2.AskCheckpointRequest)]


@pytest.mark.parametrize("arguments", [("tiny-lm",), ("list", "tiny-lm"), ("-o", "table", "tiny-lm")])
def test_the_bare_form_lists_with_parents_reasons_and_how_saves_go(ctl: Ctl, arguments: tuple[str, ...]) -> None:
    ran = ctl("checkpoints", *arguments, columns="200")
    assert ran.code == 0, ran
    rows = {line.split()[0]: line for line in ran.out.splitlines()}
    assert "corrupt" in rows["1100"]
    assert "1000@1" in rows["1100"]
    assert "XXH3-128 differs (found by n1, n4)" in rows["1100"]
    assert "writing" in rows["1200"]
    assert "saves: every 100 steps" in rows["saves:"]
    assert "more than the 1h wanted; 3 saves failed" in rows["saves:"]


def test_a_job_shows_how_its_saves_go(ctl: Ctl) -> None:
    assert "3 saves failed" in " ".join(ctl("job", "tiny-lm").out.split())


def test_a_pin_carries_step_reason_and_who(ctl: Ctl, server: OperatorServer) -> None:
    ran = ctl("checkpoints", "pin", "tiny-lm", "1000@1", "--reason", "release 3", columns="200")
    assert ran.code == 0, ran
    assert "release 3" in ran.out
    (request,) = asked(server)
    assert (request.step, request.generation, request.verb) == (1000, 1, operator_pb2.CHECKPOINT_VERB_PIN)
    assert "@" in request.by
    assert request.request_id


@pytest.mark.parametrize(("verb", "number"), [("verify", 1), ("unpin", 3)])
def test_other_verbs_are_asked_as_such(ctl: Ctl, server: OperatorServer, verb: str, number: int) -> None:
    assert ctl("checkpoints", verb, "tiny-lm", "1000").code == 0
    assert [each.verb for each in asked(server)] == [number]


def test_a_drill_is_asked_of_the_newest_unless_a_step_is_named(ctl: Ctl, server: OperatorServer) -> None:
    def newest(world: World) -> None:
        world.jobs["tiny-lm"].checkpoints.add(step=0)  # the one that stands for it in this coordinator

    server.change(newest)
    ran = ctl("checkpoints", "drill", "tiny-lm")
    assert ran.code == 0, ran
    assert "as soon as nodes are idle" in ran.out
    assert ctl("checkpoints", "drill", "tiny-lm", "1000@1").code == 0
    drill = operator_pb2.CHECKPOINT_VERB_DRILL
    assert [(each.step, each.generation, each.verb) for each in asked(server)] == [(0, 0, drill), (1000, 1, drill)]


def test_what_a_drill_found_is_shown_with_its_checkpoint_and_its_job(ctl: Ctl, server: OperatorServer) -> None:
    def drilled(world: World) -> None:
        job = world.jobs["tiny-lm"]
        job.last_drill.CopyFrom(
            operator_pb2.DrillResult(
                checkpoint="1000@1",
                outcome=operator_pb2.DRILL_OUTCOME_FAILED,
                at_s=1_790_000_000.0,
                nodes=["n3"],
                world_size=4,
                restore_s=2.0,
                bytes_per_s=3 << 20,
                note="3 steps trained; loss deviates by 0.09 at most (step 1003)",
            )
        )
        next(each for each in job.checkpoints if each.step == 1000).drill.CopyFrom(job.last_drill)

    server.change(drilled)
    said = "failed on n3 with 4 workers in 2s (3.0MiB/s): 3 steps trained; loss deviates by 0.09 at most (step 1003)"
    assert f"drill {said}" in ctl("checkpoints", "tiny-lm", columns="400").out
    shown = " ".join(ctl("job", "tiny-lm", columns="400").out.split())
    assert "Drills checkpoint 1000@1" in shown
    assert said in shown


def test_drills_are_no_jobs_of_anybody_and_listed_only_when_asked_for(ctl: Ctl, server: OperatorServer) -> None:
    def drill(world: World) -> None:
        found = world.jobs["tiny-lm.drill"] = operator_pb2.Job()
        found.CopyFrom(world.jobs["tiny-lm"])
        found.name, found.drill_of = "tiny-lm.drill", "tiny-lm"

    server.change(drill)
    assert "tiny-lm.drill" not in ctl("jobs").out
    assert "tiny-lm.drill" in ctl("jobs", "--drills").out


@pytest.mark.parametrize("step", ["latest", "1000@", "@2", "-1", "1e3", "9" * 20])
def test_what_is_no_step_is_refused_before_anybody_is_asked(ctl: Ctl, server: OperatorServer, step: str) -> None:
    assert ctl("checkpoints", "verify", "tiny-lm", step).code == 2
    assert asked(server) == []


def test_a_refusal_is_exit_2_with_the_coordinators_words(ctl: Ctl) -> None:
    ran = ctl("checkpoints", "verify", "tiny-lm", "77")
    assert ran.code == 2, ran
    assert "has no checkpoint 77" in ran.err


def test_an_export_is_waited_for(ctl: Ctl, server: OperatorServer) -> None:
    with ctl.process("checkpoints", "export", "tiny-lm", "1000", "s3://out/x", "--wait") as process:
        server.until(lambda: bool(server.world.jobs["tiny-lm"].exports))

        def done(world: World) -> None:
            world.jobs["tiny-lm"].exports[0].state = operator_pb2.EXPORT_STATE_DONE

        server.change(done)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "1000" in out


def test_an_export_that_fails_is_exit_5_with_the_reason(ctl: Ctl, server: OperatorServer) -> None:
    with ctl.process("checkpoints", "export", "tiny-lm", "1000", "/out", "--wait") as process:
        server.until(lambda: bool(server.world.jobs["tiny-lm"].exports))

        def failed(world: World) -> None:
            export = world.jobs["tiny-lm"].exports[0]
            export.state, export.note = operator_pb2.EXPORT_STATE_FAILED, "n2: No space left on device"

        server.change(failed)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert "n2: No space left on device" in err


def rollbacks(server: OperatorServer) -> list[bool]:
    """For each rollback that was asked for whether it was a trial."""
    return [each.dry_run for each in server.requests if isinstance(each, operator_pb2.RollbackJobRequest)]


def test_a_trial_shows_what_would_be_lost_and_does_nothing(ctl: Ctl, server: OperatorServer) -> None:
    ran = ctl("checkpoints", "rollback", "tiny-lm", "1000", "--reason", "NaN", "--dry-run", columns="200")
    assert ran.code == 0, ran
    assert "200 steps have to be done again" in ran.out
    assert "1100" in ran.out
    assert rollbacks(server) == [True]


def test_without_a_terminal_a_rollback_needs_yes(ctl: Ctl, server: OperatorServer) -> None:
    ran = ctl("checkpoints", "rollback", "tiny-lm", "1000", "--reason", "NaN")
    assert ran.code == 2, ran
    assert "--yes" in ran.err
    assert rollbacks(server) == [True]
    assert ctl("checkpoints", "rollback", "tiny-lm", "1000", "--reason", "NaN", "--yes").code == 0
    assert rollbacks(server) == [True, False]


@pytest.mark.parametrize(("answer", "asked_for"), [(b"n\n", [True]), (b"y\n", [True, False])])
def test_on_a_terminal_it_is_asked_first(
    ctl: Ctl, server: OperatorServer, answer: bytes, asked_for: list[bool]
) -> None:
    ours, theirs = pty.openpty()
    command = [*CTL, "checkpoints", "rollback", "tiny-lm", "1000", "--reason", "NaN"]
    with subprocess.Popen(
        command, env={**os.environ, **ctl.env}, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(theirs)
        os.write(ours, answer)
        out, err = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0, err
    assert b"have to be done again" in out
    assert b"Go back to it?" in err
    assert rollbacks(server) == asked_for


def test_a_rollback_wants_a_reason(ctl: Ctl) -> None:
    assert ctl("checkpoints", "rollback", "tiny-lm", "1000", "--yes").code == 2
