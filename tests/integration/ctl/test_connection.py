"""Coordinators that are away, slow, not leading, or cut a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from evertrain.api.transport import Tls
from evertrain.api.v1 import operator_pb2
from support.certificates import Authority
from support.operator import Fault, OperatorServer, an_event

from .conftest import Ctl, populate


@pytest.fixture
def other() -> Iterator[OperatorServer]:
    """A second coordinator."""
    with OperatorServer() as server:
        server.change(populate)
        yield server


def test_a_request_is_tried_again_while_nobody_leads(ctl: Ctl, server: OperatorServer) -> None:
    server.faults += [Fault(), Fault()]
    ran = ctl("jobs")
    assert ran.code == 0, ran
    assert len(server.requests) == 3


def test_the_leader_is_followed_at_once(ctl: Ctl, server: OperatorServer, other: OperatorServer) -> None:
    server.faults += [Fault(leader=other.address)]
    ran = ctl("drain-node", "n1", "--reason", "x")
    assert ran.code == 0, ran
    assert len(server.requests) == len(other.requests) == 1
    assert server.requests[0].request_id == other.requests[0].request_id


def test_a_stream_follows_the_leader_too(ctl: Ctl, server: OperatorServer, other: OperatorServer) -> None:
    server.faults += [Fault(leader=other.address)]
    assert "rank 2 was killed" in ctl("events").out
    assert len(other.requests) == 1


def test_two_that_point_at_each_other_end_in_exit_3(ctl: Ctl, server: OperatorServer, other: OperatorServer) -> None:
    server.faults += [Fault(leader=other.address) for _ in range(1000)]
    other.faults += [Fault(leader=server.address) for _ in range(1000)]
    ran = ctl("jobs", "--timeout", "1s")
    assert ran.code == 3, ran
    assert "cannot serve, for 1s now: no coordinator leads at the moment" in ran.err
    assert len(server.requests) + len(other.requests) < 100  # it paused


def test_the_next_address_is_tried_when_one_is_away(ctl: Ctl, server: OperatorServer) -> None:
    ran = ctl("jobs", "--coordinator", f"127.0.0.1:1,{server.address}")
    assert ran.code == 0, ran


def test_an_address_that_hangs_does_not_use_up_the_whole_time(
    ctl: Ctl, server: OperatorServer, other: OperatorServer
) -> None:
    server.faults += [Fault(hang=True)]
    ran = ctl("jobs", "--coordinator", f"{server.address},{other.address}", "--timeout", "2s")
    assert ran.code == 0, ran


def test_nobody_there_is_exit_3_and_says_where_it_looked(ctl: Ctl) -> None:
    ran = ctl("jobs", "--coordinator", "127.0.0.1:1", "--timeout", "300ms")
    assert ran.code == 3, ran
    assert "no coordinator answered at 127.0.0.1:1 within 300ms" in ran.err
    assert "Connection refused" in ran.err
    assert "'ctl doctor' checks" in ran.err


def test_longer_retries_are_remarked_on_once(ctl: Ctl) -> None:
    ran = ctl("jobs", "--coordinator", "127.0.0.1:1", "--timeout", "2500ms")
    assert ran.code == 3
    assert ran.err.count("trying again for up to") == 1


def test_without_any_coordinator_the_hint_is_ctl_up(ctl: Ctl) -> None:
    ctl.env["EVERTRAIN_COORDINATOR"] = ""
    ran = ctl("jobs")
    assert ran.code == 3
    assert "start a local cluster with 'ctl up'" in ran.err


def test_no_answer_in_time_is_exit_6(ctl: Ctl, server: OperatorServer) -> None:
    server.faults += [Fault(hang=True)]
    ran = ctl("jobs", "--timeout", "500ms")
    assert ran.code == 6, ran
    assert "no answer from" in ran.err


def test_a_stream_that_stays_silent_is_exit_6(ctl: Ctl, server: OperatorServer) -> None:
    server.faults += [Fault(hang=True)]
    assert ctl("events", "--timeout", "500ms").code == 6


@pytest.mark.parametrize(
    ("code", "exit_code", "part"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, 1, "told so"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 1, "told so"),
        (grpc.StatusCode.INVALID_ARGUMENT, 2, "told so"),
        (grpc.StatusCode.PERMISSION_DENIED, 1, "check --tls-cert"),
        (grpc.StatusCode.UNIMPLEMENTED, 1, "compare the versions"),
        (grpc.StatusCode.INTERNAL, 1, "its log says more"),
    ],
)
def test_every_refusal_has_its_exit_code(
    ctl: Ctl, server: OperatorServer, code: grpc.StatusCode, exit_code: int, part: str
) -> None:
    server.faults += [Fault(code=code, details="told so")]
    ran = ctl("jobs")
    assert ran.code == exit_code
    assert part in ran.err
    assert len(server.requests) == 1


def test_events_go_on_after_a_cut_each_once(ctl: Ctl, server: OperatorServer) -> None:
    server.faults += [Fault(after=2), Fault()]
    ran = ctl("events", "-o", "json")
    assert [json.loads(line)["sequence"] for line in ran.out.splitlines()] == [1, 2, 3]
    assert [request.after_sequence for request in server.requests] == [0, 2, 2]


def test_followed_events_survive_a_restart_of_the_coordinator(ctl: Ctl, server: OperatorServer) -> None:
    with ctl.process("events", "-f", "-o", "json") as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["sequence"] for _ in range(3)]
        server.restart()
        server.until(lambda: len(server.requests) == 2)
        server.change(lambda world: world.events.append(an_event(4, "news")))
        seen.append(json.loads(process.stdout.readline())["sequence"])
        process.terminate()
        process.wait(30)
        assert process.stderr is not None
        process.stderr.close()
    assert seen == [1, 2, 3, 4]
    assert server.requests[-1].after_sequence == 3


def test_a_gap_in_followed_events_is_told(ctl: Ctl, server: OperatorServer) -> None:
    with ctl.process("events", "-f", "-o", "json") as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["sequence"] for _ in range(3)]

        def forget(world: object) -> None:
            server.world.events[:] = [an_event(9, "much later")]
            server.world.oldest_event = 9

        server.do(server.stop())
        forget(server.world)
        server.do(server.start(server.address))
        seen.append(json.loads(process.stdout.readline())["sequence"])
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert seen == [1, 2, 3, 9]
    assert "no longer kept" in err


def test_a_followed_log_goes_on_after_a_cut_and_says_that_lines_repeat(ctl: Ctl, server: OperatorServer) -> None:
    server.change(lambda world: world.log.extend(b"line %d\n" % number for number in range(20)))
    server.faults += [Fault(after=15)]
    ran = ctl("logs", "tiny-lm", "-f")
    assert ran.code == 0
    assert [request.tail_lines for request in server.requests] == [0, 10]
    assert ran.out.splitlines()[-10:] == [f"line {number}" for number in range(10, 20)]
    assert "up to 10 lines come again" in ran.err


def test_a_log_that_is_cut_off_is_exit_1_and_not_repeated(ctl: Ctl, server: OperatorServer) -> None:
    server.change(lambda world: world.log.extend([b"a\n", b"b\n"]))
    server.faults += [Fault(after=1)]
    ran = ctl("logs", "tiny-lm")
    assert ran.code == 1
    assert ran.out == "a\n"
    assert "cut off on its way" in ran.err


def test_tls_both_ways(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "other", name="a stranger")
    server_pair, client_pair = authority.issue("coordinator"), authority.issue("ann")
    tls = Tls(ca=authority.ca, cert=server_pair.cert, key=server_pair.key)
    ours = ["--tls-ca", str(authority.ca), "--tls-cert", str(client_pair.cert), "--tls-key", str(client_pair.key)]
    with OperatorServer(tls=tls) as server:
        ctl = Ctl(server.address, tmp_path)
        assert ctl("jobs", *ours).code == 0
        distrusted = ctl("jobs", "--tls-ca", str(stranger.ca), "--timeout", "500ms")
        assert distrusted.code == 3
        assert "--tls-ca" in distrusted.err
        assert ctl("jobs", "--timeout", "500ms").code == 3
        checked = ctl("doctor", *ours, "--python", "/bin/false", columns="200").out
        assert "warn  tls-cert" in checked
        assert "1d" in checked or "23h" in checked


def test_a_reader_that_leaves_early_ends_ctl_quietly(ctl: Ctl, server: OperatorServer) -> None:
    server.change(lambda world: world.log.extend([b"x" * 60_000 + b"\n"] * 40))
    with ctl.process("logs", "tiny-lm") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(30) == 141


def test_the_version_request_is_the_only_thing_version_asks(ctl: Ctl, server: OperatorServer) -> None:
    ctl("version")
    assert [type(request) for request in server.requests] == [operator_pb2.GetVersionRequest]
