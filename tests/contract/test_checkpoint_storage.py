"""What storage/api.py of the checkpoints promises, on every storage. Because of this suite memory may stand in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.storage.api import AlreadyThere, Missing, Storage
from evertrain.checkpoint.storage.memory import MemoryStorage
from evertrain.checkpoint.storage.s3 import S3Storage
from evertrain.checkpoint.storage.s3_calls import Patience, S3Calls
from support.radosgw import NEEDS_RADOSGW, Radosgw
from support.s3 import BUCKET, S3Server, use_endpoint

BYTES_MAX = 1 << 20
FOLDER = "j1/step-000000010-g1"


@contextmanager
def connected(endpoint: str) -> Iterator[S3Calls]:
    """One connection for all tests: making it takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        use_endpoint(patch, endpoint)
        calls = S3Calls(patience=Patience(budget_s=5))
        calls.call("create_bucket", BUCKET, Bucket=BUCKET)
        yield calls


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Calls]:
    server = S3Server()
    with connected(server.endpoint) as calls:
        yield calls
    server.close()


@pytest.fixture(scope="module")
def radosgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Calls]:
    server = Radosgw(tmp_path_factory.mktemp("ceph"))
    with connected(server.endpoint) as calls:
        yield calls
    server.close()


@pytest.fixture(params=["memory", "posix", "posix-fresh", "s3", pytest.param("radosgw", marks=NEEDS_RADOSGW)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    match request.param:
        case "memory":
            return MemoryStorage()
        case "posix":
            return open_storage(str(tmp_path / "root"))
        case "posix-fresh":
            return open_storage((tmp_path / "root").as_uri(), fresh=True)
        case name:
            return S3Storage(BUCKET, f"{tmp_path.name}/root", request.getfixturevalue(name))


def pieces(*parts: bytes) -> list[memoryview]:
    return [memoryview(part) for part in parts]


def test_what_was_written_in_pieces_is_read_as_one(storage: Storage) -> None:
    storage.write(f"{FOLDER}/a", pieces(b"one", b"", b"two"))
    assert storage.read(f"{FOLDER}/a", bytes_max=BYTES_MAX) == b"onetwo"
    assert storage.size(f"{FOLDER}/a") == 6


def test_a_large_file_of_large_pieces_comes_back_whole(storage: Storage) -> None:
    whole = bytes(range(256)) * (80 << 10)  # 20 MiB
    storage.write("large", pieces(whole[: 7 << 20], whole[7 << 20 : (12 << 20) + 1], whole[(12 << 20) + 1 :]))
    found = bytearray(len(whole))
    storage.read_into("large", 0, memoryview(found))
    assert found == whole


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 16) + 1, (20 << 20) + 1])
def test_a_file_is_streamed_in_order(storage: Storage, size: int) -> None:
    whole = (bytes(range(251)) * (size // 251 + 1))[:size]
    storage.write("a", pieces(whole))
    found = bytearray()
    for piece in storage.stream("a", size):
        found += piece
    assert found == whole


def test_a_stream_past_the_end_is_refused_and_one_may_be_left(storage: Storage) -> None:
    storage.write("a", pieces(bytes(20 << 20)))
    left = storage.stream("a", 20 << 20)
    next(left)
    left.close()
    with pytest.raises(EOFError, match="a: ends at"):
        for _ in storage.stream("a", (20 << 20) + 1):
            pass
    with pytest.raises(Missing):
        next(storage.stream("b", 1))


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    storage.write("empty", [])
    assert (storage.size("empty"), storage.read("empty", bytes_max=0)) == (0, b"")
    assert storage.list("") == ["empty"]


def test_writing_again_replaces_the_file(storage: Storage) -> None:
    storage.write("a", pieces(b"a longer one"))
    storage.write("a", pieces(b"short"))
    assert storage.read("a", bytes_max=BYTES_MAX) == b"short"


@pytest.mark.parametrize(("start", "count"), [(0, 4), (3, 1), (4095, 4098), (8192, 0), (0, 8192), (4096, 4096)])
def test_a_range_is_read_into_a_buffer(storage: Storage, start: int, count: int) -> None:
    whole = bytes(range(256)) * 33
    storage.write("a", pieces(whole))
    found = bytearray(count)
    storage.read_into("a", start, memoryview(found))
    assert found == whole[start : start + count]


@pytest.mark.parametrize("start", [0, 95, 100, 5000])
def test_a_range_past_the_end_is_refused(storage: Storage, start: int) -> None:
    storage.write("a", pieces(bytes(100)))
    with pytest.raises(EOFError, match="a: ends at"):
        storage.read_into("a", start, memoryview(bytearray(101)))


def test_a_file_that_is_too_large_is_not_read(storage: Storage) -> None:
    storage.write("a", pieces(bytes(101)))
    assert len(storage.read("a", bytes_max=101)) == 101
    with pytest.raises(ValueError, match="more than 100 bytes"):
        storage.read("a", bytes_max=100)


def test_what_is_not_there_is_missing(storage: Storage) -> None:
    storage.write(f"{FOLDER}/a", [])
    for path in (f"{FOLDER}/b", "j1/step-000000020-g1/a", "c", f"{FOLDER}/a/b", FOLDER):
        with pytest.raises(Missing):
            storage.read(path, bytes_max=BYTES_MAX)
        with pytest.raises(Missing):
            storage.size(path)
        with pytest.raises(Missing):
            storage.read_into(path, 0, memoryview(bytearray(1)))


def test_a_folder_lists_its_files_and_folders(storage: Storage) -> None:
    assert storage.list("") == []
    for path in (f"{FOLDER}/b", f"{FOLDER}/a", f"{FOLDER}/c/d", f"{FOLDER}0/a", "j2/a"):
        storage.write(path, [])
    assert storage.list("") == ["j1", "j2"]
    assert storage.list("j1") == ["step-000000010-g1", "step-000000010-g10"]
    assert storage.list(FOLDER) == ["a", "b", "c"]
    assert storage.list("j3") == []
    assert storage.list(f"{FOLDER}/a") == []


def test_a_created_file_is_not_created_twice(storage: Storage) -> None:
    storage.create(f"{FOLDER}/manifest.json", b"first")
    with pytest.raises(AlreadyThere, match=r"manifest\.json.* not touched"):
        storage.create(f"{FOLDER}/manifest.json", b"second")
    assert storage.read(f"{FOLDER}/manifest.json", bytes_max=BYTES_MAX) == b"first"
    assert storage.list(FOLDER) == ["manifest.json"]


def test_creating_the_same_again_is_a_repeat_and_succeeds(storage: Storage) -> None:
    storage.create("a", b"same")
    storage.create("a", b"same")
    assert storage.read("a", bytes_max=BYTES_MAX) == b"same"


def test_of_many_that_create_at_once_exactly_one_succeeds(storage: Storage) -> None:
    together = threading.Barrier(8)

    def attempt(number: int) -> bool:
        together.wait(10)
        try:
            storage.create(f"{FOLDER}/manifest.json", f"writer {number}".encode())
        except AlreadyThere:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(attempt, range(8)))
    assert outcomes.count(True) == 1
    winner = f"writer {outcomes.index(True)}".encode()
    assert storage.read(f"{FOLDER}/manifest.json", bytes_max=BYTES_MAX) == winner


def test_a_removed_folder_is_gone_with_all_that_was_in_it_and_nothing_else(storage: Storage) -> None:
    for path in (f"{FOLDER}/a", f"{FOLDER}/b/c", f"{FOLDER}/manifest.json", f"{FOLDER}0/a"):
        storage.write(path, [])
    storage.remove(FOLDER)
    assert storage.list("j1") == ["step-000000010-g10"]
    assert storage.list(FOLDER) == []
    assert storage.list(f"{FOLDER}0") == ["a"]


def test_a_removed_file_is_gone_and_its_neighbour_is_not(storage: Storage) -> None:
    storage.write("a/b", [])
    storage.write("a/c", [])
    storage.remove("a/b")
    assert storage.list("a") == ["c"]


def test_removing_what_is_not_there_does_nothing(storage: Storage) -> None:
    storage.remove("a")
    storage.write("a/b", [])
    storage.remove("a/c")
    storage.remove("d/e")
    assert storage.list("a") == ["b"]


@pytest.mark.parametrize("path", ["../a", "a/../../b", "/etc/passwd", "a//b", ".", "a/./b", "a\\b", "a\0b", "a/"])
def test_a_path_that_leads_out_of_the_root_is_refused(storage: Storage, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: storage.write(path, []),
        lambda: storage.create(path, b""),
        lambda: storage.read(path, bytes_max=1),
        lambda: storage.read_into(path, 0, memoryview(bytearray(1))),
        lambda: storage.size(path),
        lambda: storage.list(path),
        lambda: storage.remove(path),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="not a plain path"):
            call()


def test_the_root_itself_is_neither_written_nor_removed(storage: Storage) -> None:
    storage.write("a", [])
    calls: list[Callable[[], object]] = [
        lambda: storage.write("", []),
        lambda: storage.create("", b""),
        lambda: storage.remove(""),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="root itself"):
            call()
    assert storage.list("") == ["a"]


def test_free_space_is_a_number_or_not_known(storage: Storage) -> None:
    free = storage.free_bytes()
    assert free is None or free > 0
