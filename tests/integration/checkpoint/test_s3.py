"""Checkpoints in a bucket when the server or the network fails: over HTTP, through a proxy that fails on demand."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evertrain.checkpoint.manifest import MANIFEST_NAME
from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.storage.api import (
    AlreadyThere,
    Missing,
    NotWritable,
    StorageError,
    StorageFull,
    Unreachable,
)
from evertrain.checkpoint.storage.posix import PosixStorage
from evertrain.checkpoint.storage.s3 import PART_BYTES, PROBE_PREFIX, S3Storage
from evertrain.checkpoint.storage.s3_calls import S3Calls
from evertrain.checkpoint.tasks import export, place_of
from evertrain.checkpoint.verify import verify
from support.checkpoints import write_checkpoint
from support.s3 import (
    ACCESS_KEY,
    BUCKET,
    SECRET,
    Fault,
    FaultyProxy,
    Request,
    S3Server,
    impatient,
    key_of,
    use_endpoint,
)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def proxied(server: S3Server) -> Iterator[tuple[FaultyProxy, S3Calls]]:
    with FaultyProxy(server.port) as proxy, pytest.MonkeyPatch.context() as patch:
        use_endpoint(patch, proxy.endpoint)
        calls = S3Calls(patience=impatient(budget_s=2))
        calls.call("create_bucket", BUCKET, Bucket=BUCKET)
        yield proxy, calls


@pytest.fixture
def proxy(proxied: tuple[FaultyProxy, S3Calls]) -> Iterator[FaultyProxy]:
    proxied[0].asked.clear()
    yield proxied[0]
    proxied[0].decide = lambda request: None


@pytest.fixture
def storage(proxied: tuple[FaultyProxy, S3Calls], proxy: FaultyProxy, request: pytest.FixtureRequest) -> S3Storage:
    return S3Storage(BUCKET, request.node.name.translate({ord("["): "-", ord("]"): ""}), proxied[1])


def first(
    count: int, fault: Fault, *, of: Callable[[Request], bool] = lambda request: True
) -> Callable[[Request], Fault | None]:
    """The first ``count`` requests that fit fail, each key and part counted by itself."""
    failed: dict[tuple[str, str], int] = {}

    def decide(request: Request) -> Fault | None:
        if not of(request):
            return None
        at = (request.method, request.path)
        failed[at] = failed.get(at, 0) + 1
        return fault if failed[at] <= count else None

    return decide


def write(storage: S3Storage, path: str, data: bytes) -> None:
    storage.write(path, [memoryview(data)])


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=503, code="SlowDown"),
        Fault(status=500, code="InternalError"),
        Fault(status=400, code="RequestTimeout"),
        Fault(reset=True),
        Fault(lose_answer=True),
    ],
    ids=["slow-down", "internal-error", "request-timeout", "reset", "lost-answer"],
)
def test_what_passes_is_tried_again(storage: S3Storage, proxy: FaultyProxy, fault: Fault) -> None:
    # The answer to HEAD has no body to say what is wrong; servers say "request timeout" of uploads only.
    proxy.decide = first(2, fault, of=lambda request: request.method != "HEAD" or fault.status != 400)
    write(storage, "a/b", b"content")
    storage.create(f"a/{MANIFEST_NAME}", b"marker")
    assert storage.list("a") == ["b", MANIFEST_NAME]
    assert storage.read("a/b", bytes_max=100) == b"content"
    assert storage.size("a/b") == 7
    storage.remove("a")
    assert storage.list("a") == []


def test_every_part_of_a_large_file_may_fail_twice(storage: S3Storage, proxy: FaultyProxy) -> None:
    whole = bytes(range(256)) * (2 * PART_BYTES // 256) + b"the last part"
    proxy.decide = first(2, Fault(status=503, code="SlowDown"), of=lambda request: "partNumber" in request.path)
    write(storage, "large", whole)
    assert sum("partNumber" in request.path for request in proxy.asked) == 9
    found = bytearray(len(whole))
    storage.read_into("large", 0, memoryview(found))
    assert found == whole


def test_an_answer_cut_short_is_asked_for_again(storage: S3Storage, proxy: FaultyProxy) -> None:
    write(storage, "a", b"x" * 1000)
    proxy.decide = first(2, Fault(keep_bytes=500))
    found = bytearray(900)
    storage.read_into("a", 100, memoryview(found))
    assert found == b"x" * 900


def test_a_commit_whose_answer_was_lost_is_known_by_its_content(storage: S3Storage, proxy: FaultyProxy) -> None:
    proxy.decide = first(1, Fault(lose_answer=True), of=lambda request: request.path.endswith(MANIFEST_NAME))
    storage.create(MANIFEST_NAME, b"ours")
    assert storage.read(MANIFEST_NAME, bytes_max=100) == b"ours"
    with pytest.raises(AlreadyThere):
        storage.create(MANIFEST_NAME, b"another's")


def test_a_server_that_ignores_conditions_is_not_committed_to(storage: S3Storage, proxy: FaultyProxy) -> None:
    proxy.decide = lambda request: Fault(without_header="if-none-match")
    with pytest.raises(NotWritable, match="ignores If-None-Match"):
        storage.create(MANIFEST_NAME, b"marker")
    assert storage.list("") == []
    left = [request for request in proxy.asked if request.method == "PUT" and PROBE_PREFIX not in request.path]
    assert left == []


def test_conditions_are_tried_out_once(storage: S3Storage, proxy: FaultyProxy) -> None:
    for number in range(3):
        storage.create(f"{number}/{MANIFEST_NAME}", b"marker")
    probes = [request.method for request in proxy.asked if PROBE_PREFIX in request.path]
    assert probes == ["PUT", "PUT", "DELETE"]


@pytest.mark.parametrize(
    ("status", "code", "kind", "part"),
    [
        (403, "AccessDenied", NotWritable, "the server refuses (403 AccessDenied)"),
        (403, "SignatureDoesNotMatch", NotWritable, "see the credentials"),
        (403, "QuotaExceeded", StorageFull, "quota"),
        (507, "InsufficientStorage", StorageFull, "no room"),
        (503, "SlowDown", Unreachable, "overloaded or broken (503 SlowDown) (tried for"),
        (404, "NoSuchBucket", Unreachable, "the bucket is not there"),
        (400, "InvalidArgument", StorageError, "does not take the request (400 InvalidArgument)"),
    ],
)
def test_an_answer_that_stays_is_told(
    storage: S3Storage, proxy: FaultyProxy, status: int, code: str, kind: type[StorageError], part: str
) -> None:
    proxy.decide = lambda request: Fault(status=status, code=code)
    for call in (lambda: write(storage, "a", b"x"), lambda: storage.read("a", bytes_max=1)):
        with pytest.raises(StorageError) as caught:
            call()
        assert type(caught.value) is kind
        assert str(caught.value).startswith(f"{storage.url}/a: ")
        assert part in str(caught.value)
        assert ACCESS_KEY not in str(caught.value)  # it is in what the server says
        assert SECRET not in str(caught.value)


def test_a_bucket_that_is_not_there_is_not_a_missing_file(proxied: tuple[FaultyProxy, S3Calls]) -> None:
    storage = S3Storage("no-such-bucket", "", proxied[1])
    for call in (
        lambda: write(storage, "a", b""),
        lambda: storage.size("a"),
        lambda: storage.read("a", bytes_max=1),
        lambda: storage.list(""),
        lambda: storage.remove("a"),
    ):
        with pytest.raises(Unreachable, match=r"the bucket is not there \(404 NoSuchBucket\); create it"):
            call()


def test_a_server_that_does_not_answer_is_given_up(proxy: FaultyProxy) -> None:
    storage = S3Storage(BUCKET, "x", S3Calls(patience=impatient(budget_s=0.5, silence_s=0.3)))
    proxy.decide = lambda request: Fault(stall=True)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="no answer in time"):
        storage.read("a", bytes_max=1)
    assert time.monotonic() - began < 10


def test_a_server_that_is_down_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    use_endpoint(monkeypatch, f"http://127.0.0.1:{port}")
    storage = S3Storage(BUCKET, "x", S3Calls(patience=impatient(budget_s=0.2)))
    with pytest.raises(Unreachable, match=r"cannot connect .*; see AWS_ENDPOINT_URL_S3"):
        storage.list("")


def test_an_upload_that_fails_for_good_is_undone(storage: S3Storage, proxy: FaultyProxy) -> None:
    def decide(request: Request) -> Fault | None:
        return Fault(status=403, code="AccessDenied") if "partNumber=2" in request.path else None

    proxy.decide = decide
    with pytest.raises(NotWritable):
        write(storage, "large", bytes(PART_BYTES + 1))
    assert [request.method for request in proxy.asked][-1] == "DELETE"
    assert "uploadId=" in proxy.asked[-1].path
    with pytest.raises(Missing):
        storage.size("large")


def test_a_checkpoint_loses_its_marker_before_all_else(storage: S3Storage, proxy: FaultyProxy) -> None:
    for name in ("a", MANIFEST_NAME, "z"):
        write(storage, f"j1/step-000000010-g1/{name}", b"x")
    proxy.asked.clear()
    storage.remove("j1/step-000000010-g1")
    deleted = [key_of(request).rpartition("/")[2] for request in proxy.asked if request.method == "DELETE"]
    assert deleted[0] == MANIFEST_NAME
    assert set(deleted) == {MANIFEST_NAME, "a", "z", "step-000000010-g1"}


def test_no_credentials_are_told(proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{tmp_path}/none")
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/none")
    with pytest.raises(Unreachable, match="no credentials; set AWS_ACCESS_KEY_ID"):
        open_storage(f"s3://{BUCKET}/x").list("")


@pytest.mark.parametrize("url", [f"s3://{ACCESS_KEY}:{SECRET}@{BUCKET}/x", f"s3://{BUCKET}/x?key={SECRET}", "s3:///x"])
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="credentials come from the environment") as caught:
        open_storage(url)
    assert SECRET not in str(caught.value)


def test_the_command_verifies_exports_lists_and_removes_in_a_bucket(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, proxied: tuple[FaultyProxy, S3Calls], tmp_path: Path
) -> None:
    use_endpoint(monkeypatch, server.endpoint)
    storage = S3Storage(BUCKET, "cluster", proxied[1])
    written = write_checkpoint(storage)

    def command(*arguments: str) -> tuple[int, str]:
        line = [sys.executable, "-m", "evertrain.checkpoint", *arguments]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout

    url = f"s3://{BUCKET}/cluster/{written.folder}"
    code, said = command("verify", url, "--digest", written.digest)
    assert (code, json.loads(said)["outcome"]) == (0, "sound")
    assert command("export", url, str(tmp_path)) == (0, f"{tmp_path}/{written.manifest.name}\n")
    verify(PosixStorage(tmp_path), str(written.manifest.name), digest=written.digest)
    assert command("remove", url) == (0, "")
    back = export(place_of(f"{tmp_path}/{written.manifest.name}"), S3Storage(BUCKET, "cluster/back", proxied[1]))
    code, said = command("list", f"s3://{BUCKET}/cluster")
    assert [json.loads(line)["path"] for line in said.splitlines()] == [back.url]
