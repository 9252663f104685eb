"""submit, --watch and wait: what is sent, what is said, and what happens when things go wrong meanwhile."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from evertrain.api.v1 import operator_pb2
from support.operator import Fault, OperatorServer, a_job

from .conftest import Ctl


def submits(server: OperatorServer) -> list[operator_pb2.SubmitJobRequest]:
    """All that were asked for."""
    return [each for each in server.requests if isinstance(each, operator_pb2.SubmitJobRequest)]


def end(server: OperatorServer, name: str, state: operator_pb2.JobState, reason: str) -> None:
    """Let a job end."""
    server.change(lambda world: world.jobs[name].MergeFrom(operator_pb2.Job(state=state, reason=reason)))


def test_submit_sends_the_resolved_specification(ctl: Ctl, server: OperatorServer, spec: Path) -> None:
    ran = ctl("submit", str(spec))
    assert ran.code == 0, ran
    assert ran.out.startswith("submitted new-job: queued, waits for nodes\n")
    (request,) = submits(server)
    assert request.spec.script == str(spec.parent / "train.py")
    assert request.spec.nodes.max == 2
    assert request.request_id


def test_the_name_can_be_replaced_and_the_file_come_from_a_pipe(ctl: Ctl, server: OperatorServer, spec: Path) -> None:
    assert ctl("submit", str(spec), "--name", "other").code == 0
    piped = spec.read_text().replace("train.py", str(spec.parent / "train.py"))
    assert ctl("submit", "-", stdin=piped).code == 0
    assert [request.spec.name for request in submits(server)] == ["other", "new-job"]


def test_a_bad_file_is_exit_2_and_nothing_is_sent(ctl: Ctl, server: OperatorServer, spec: Path) -> None:
    spec.write_text("name: X\nscript: trian.py\nnodes: {mn: 1}\n" + "".join(f"f{i}: 1\n" for i in range(30)))
    ran = ctl("submit", str(spec))
    assert ran.code == 2
    assert server.requests == []
    lines = ran.err.splitlines()
    assert lines[0] == "error: the specification cannot be used; nothing was submitted"
    assert f"{spec}:1:7: name: 'X' is no job name" in lines[1]
    assert any("did you mean 'train.py'?" in line for line in lines)
    assert "and 14 more" in lines
    assert len(lines) <= 24


def test_a_missing_file_is_exit_2(ctl: Ctl, tmp_path: Path) -> None:
    ran = ctl("submit", str(tmp_path / "nothing.yaml"))
    assert ran.code == 2
    assert "nothing.yaml: cannot read: No such file or directory" in ran.err


def test_a_name_that_is_taken_is_exit_1(ctl: Ctl, server: OperatorServer, spec: Path) -> None:
    ran = ctl("submit", str(spec), "--name", "tiny-lm")
    assert ran.code == 1
    assert "a job named tiny-lm runs already" in ran.err


def test_dry_run_prints_what_can_be_submitted_again(ctl: Ctl, server: OperatorServer, spec: Path) -> None:
    ran = ctl("submit", str(spec), "--dry-run")
    assert ran.code == 0
    assert "checked here and by the coordinator; nothing was submitted" in ran.err
    assert "new-job" not in server.world.jobs
    spec.write_text(ran.out)
    assert ctl("submit", str(spec)).code == 0
    assert submits(server)[0].spec == submits(server)[-1].spec


def test_dry_run_in_json_and_without_a_coordinator(ctl: Ctl, spec: Path) -> None:
    ran = ctl("submit", str(spec), "--dry-run", "-o", "json", "--coordinator", "127.0.0.1:1", "--timeout", "200ms")
    assert ran.code == 0
    assert ran.json["spec"]["name"] == "new-job"
    assert "checked here only" in ran.err


def test_dry_run_hears_the_coordinators_objections(ctl: Ctl, server: OperatorServer, spec: Path) -> None:
    import grpc

    server.faults.append(Fault(code=grpc.StatusCode.INVALID_ARGUMENT, details="nodes.max: 16384 is out of range"))
    ran = ctl("submit", str(spec), "--dry-run")
    assert ran.code == 2
    assert "nodes.max: 16384 is out of range" in ran.err


def test_a_submit_whose_answer_was_lost_is_repeated_with_the_same_id_and_done_once(
    ctl: Ctl, server: OperatorServer, spec: Path
) -> None:
    server.faults += [Fault(applied=True), Fault(), Fault(applied=True)]
    ran = ctl("submit", str(spec))
    assert ran.code == 0, ran
    assert len({request.request_id for request in submits(server)}) == 1
    assert len(submits(server)) == 4
    assert list(server.applied) == [submits(server)[0].request_id]


def test_two_submits_have_different_ids(ctl: Ctl, server: OperatorServer, spec: Path) -> None:
    ctl("submit", str(spec))
    ctl("submit", str(spec), "--name", "b")
    assert len({request.request_id for request in submits(server)}) == 2


def test_a_submit_without_an_answer_is_exit_6_and_says_that_its_outcome_is_open(
    ctl: Ctl, server: OperatorServer, spec: Path
) -> None:
    server.faults.append(Fault(hang=True))
    ran = ctl("submit", str(spec), "--timeout", "500ms")
    assert ran.code == 6, ran
    assert "whether it was carried out is not known" in ran.err
    assert "ctl job new-job" in ran.err


@pytest.mark.parametrize(
    ("state", "code", "part"),
    [
        (operator_pb2.JOB_STATE_SUCCEEDED, 0, ""),
        (operator_pb2.JOB_STATE_FAILED, 5, "error: new-job failed: rank 0 raised ValueError"),
        (operator_pb2.JOB_STATE_CANCELLED, 5, "error: new-job was cancelled: rank 0 raised ValueError"),
    ],
)
def test_watch_follows_a_job_to_its_end(
    ctl: Ctl, server: OperatorServer, spec: Path, state: operator_pb2.JobState, code: int, part: str
) -> None:
    with ctl.process("submit", str(spec), "--watch") as process:
        server.until(lambda: any(isinstance(each, operator_pb2.WatchJobRequest) for each in server.requests))
        job = a_job("new-job")
        server.change(lambda world: world.jobs["new-job"].MergeFrom(job))
        end(server, "new-job", state, "rank 0 raised ValueError")
        out, err = process.communicate(timeout=30)
    assert process.returncode == code, (out, err)
    assert "submitted new-job" in out
    assert "queued: waits for nodes" in out
    assert "rank 0 raised ValueError" in out
    assert part in err


def test_watch_tells_each_recovery_with_its_phases(ctl: Ctl, server: OperatorServer) -> None:
    job = a_job("done", state=operator_pb2.JOB_STATE_SUCCEEDED)
    server.change(lambda world: world.jobs.update(done=job))
    out = ctl("wait", "done", columns="200").out
    assert (
        "generation 2 steps after 243ms (noticing 25ms, deciding 3ms, stopping 12ms, starting 105ms,"
        " restoring 41ms, first step 57ms); 8 steps again" in out
    )


def test_watch_in_json_is_one_job_a_line(ctl: Ctl, server: OperatorServer) -> None:
    server.change(lambda world: world.jobs.update(done=a_job("done", state=operator_pb2.JOB_STATE_SUCCEEDED)))
    lines = ctl("wait", "done", "-o", "json").out.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["succeeded"]


def test_ctrl_c_while_watching_leaves_the_job_running_and_says_so(ctl: Ctl, server: OperatorServer, spec: Path) -> None:
    with ctl.process("submit", str(spec), "--watch") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while "queued" not in line:
            line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == (
        "note: detached; new-job goes on\n  next: 'ctl wait new-job' watches it again, 'ctl cancel new-job' ends it\n"
    )
    assert server.world.jobs["new-job"].state == operator_pb2.JOB_STATE_QUEUED


def test_a_watch_that_is_cut_goes_on(ctl: Ctl, server: OperatorServer) -> None:
    server.faults += [Fault(after=1), Fault()]
    with ctl.process("wait", "tiny-lm") as process:
        server.until(lambda: sum(isinstance(each, operator_pb2.WatchJobRequest) for each in server.requests) == 1)
        server.change(lambda world: world.jobs["tiny-lm"].MergeFrom(operator_pb2.Job(step=1201)))
        server.until(lambda: sum(isinstance(each, operator_pb2.WatchJobRequest) for each in server.requests) == 3)
        end(server, "tiny-lm", operator_pb2.JOB_STATE_SUCCEEDED, "its script ended")
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, (out, err)
    assert "succeeded: its script ended" in out


def test_wait_gives_up_at_its_deadline_with_exit_6(ctl: Ctl) -> None:
    ran = ctl("wait", "tiny-lm", "--deadline", "300ms")
    assert ran.code == 6, ran
    assert "tiny-lm has not ended within 0.3 s; it goes on" in ran.err
    assert "detached" not in ran.err
