"""A copies keeper in a process of its own: what it keeps is whole and allowed, whatever befalls it or a transfer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evertrain.checkpoint import carrying
from evertrain.checkpoint.carrying import Challenge, Go, Kept, Line, NotCarried, Put, fetch, hand_over, proof_of
from evertrain.checkpoint.held import Held, Moment
from evertrain.checkpoint.keeper import Keeper
from evertrain.checkpoint.request import seal_path
from support.keepers import SIZE, KeeperProcess, a_copy


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[KeeperProcess]:
    with KeeperProcess(tmp_path / "keeper") as made:
        yield made


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The memory of the node that copies come from."""
    return tmp_path / "node"


def put_of(held: Held) -> Put:
    """What asks for it to be kept, unsigned."""
    record, seal = held.seal.record, Path(seal_path(str(held.path)))
    return Put(
        job=record.job,
        generation=record.generation,
        step=record.step,
        rank=record.rank,
        bytes=record.bytes,
        seal_bytes=seal.stat().st_size,
        keep_step=-1,
    )


def begun(keeper: KeeperProcess, put: Put) -> tuple[socket.socket, Line]:
    """A transfer that was asked for by somebody who knows the token."""
    link = socket.create_connection((keeper.door.address, keeper.door.port), timeout=10)
    line = Line(link)
    challenge: Challenge = line.receive(Challenge)
    line.send(replace(put, proof=proof_of(put, token=keeper.token, nonce=challenge.nonce)))
    return link, line


def test_what_is_handed_over_is_handed_out_bit_by_bit_the_same(keeper: KeeperProcess, node: Path) -> None:
    held = a_copy(node, 7, rank=3)
    hand_over(held, keeper.door, keep_step=-1)
    assert keeper.kept() == {(1, 7): 3}
    fetch(keeper.door, job="j", moment=Moment(generation=1, step=7), rank=3, into=node / "copy-00003-fetched-0")
    assert (node / "copy-00003-fetched-0").read_bytes() == held.path.read_bytes()
    assert (
        Path(seal_path(str(node / "copy-00003-fetched-0"))).read_bytes() == Path(seal_path(str(held.path))).read_bytes()
    )
    with pytest.raises(NotCarried, match="step 8 of rank 3, generation 1, is not here"):
        fetch(keeper.door, job="j", moment=Moment(generation=1, step=8), rank=3, into=node / "none")
    assert not (node / "none").exists()


def test_its_own_nodes_copies_are_handed_out_as_well(keeper: KeeperProcess, node: Path) -> None:
    node.mkdir()
    own = a_copy(keeper.folder, 5, rank=1, size=64)
    fetch(keeper.door, job="j", moment=own.moment, rank=1, into=node / "copy-00001-fetched-0")
    assert (node / "copy-00001-fetched-0").read_bytes() == own.path.read_bytes()


def test_only_what_all_ranks_have_and_what_comes_is_kept(keeper: KeeperProcess, node: Path) -> None:
    for step, keep in ((1, -1), (2, 1), (3, 1), (4, 3)):
        hand_over(a_copy(node, step, size=64), keeper.door, keep_step=keep)
    assert set(keeper.kept()) == {(1, 3), (1, 4)}
    hand_over(a_copy(node, 4, generation=2, size=64), keeper.door, keep_step=-1)
    assert set(keeper.kept()) == {(1, 3), (1, 4), (2, 4)}, "as long as not all ranks have one of generation 2"
    hand_over(a_copy(node, 5, generation=2, size=64), keeper.door, keep_step=4)
    assert set(keeper.kept()) == {(2, 4), (2, 5)}


def test_an_older_generation_is_refused_also_by_a_keeper_that_was_started_again(
    keeper: KeeperProcess, node: Path
) -> None:
    hand_over(a_copy(node, 9, generation=3, size=64), keeper.door, keep_step=-1)
    old = a_copy(node, 10, generation=2, size=64)
    with pytest.raises(NotCarried, match="refused: generation 2 is over, 3 runs"):
        hand_over(old, keeper.door, keep_step=-1)
    keeper.kill()
    keeper.start()
    with pytest.raises(NotCarried, match="refused: generation 2 is over, 3 runs"):
        hand_over(old, keeper.door, keep_step=-1)
    assert set(keeper.kept()) == {(3, 9)}


def test_who_does_not_know_the_token_gets_and_leaves_nothing(keeper: KeeperProcess, node: Path) -> None:
    held = a_copy(node, 7, size=64)
    hand_over(held, keeper.door, keep_step=-1)
    stranger = replace(keeper.door, token="a guess")
    with pytest.raises(NotCarried, match="the token is another one"):
        hand_over(a_copy(node, 8, size=64), stranger, keep_step=7)
    with pytest.raises(NotCarried, match="the token is another one"):
        fetch(stranger, job="j", moment=held.moment, rank=0, into=node / "stolen")
    assert set(keeper.kept()) == {(1, 7)}
    assert not (node / "stolen").exists()


def test_a_transfer_that_is_cut_leaves_nothing_and_what_was_there_stays(keeper: KeeperProcess, node: Path) -> None:
    hand_over(a_copy(node, 6), keeper.door, keep_step=-1)
    held = a_copy(node, 7)
    link, line = begun(keeper, replace(put_of(held), keep_step=6))
    with link:
        line.receive(Go)
        line.allow(SIZE)
        line.send_bytes(memoryview(Path(seal_path(str(held.path))).read_bytes()))
        line.send_bytes(held.view()[: SIZE // 2])
    hand_over(a_copy(node, 8), keeper.door, keep_step=6)
    assert set(keeper.kept()) == {(1, 6), (1, 8)}
    assert not list(keeper.folder.glob("*.part"))


def test_bytes_that_change_on_the_way_are_found_at_once(keeper: KeeperProcess, node: Path) -> None:
    held = a_copy(node, 7)
    with held.path.open("r+b") as file:  # it is being filled anew while it is read
        file.seek(SIZE - 10)
        file.write(b"another")
    with pytest.raises(NotCarried, match="model/w arrived damaged"):
        hand_over(held, keeper.door, keep_step=-1)
    assert not keeper.kept()
    assert not list(keeper.folder.glob("*.part"))


def test_a_keeper_that_is_killed_in_a_transfer_has_nothing_half_when_it_is_back(
    keeper: KeeperProcess, node: Path
) -> None:
    hand_over(a_copy(node, 6), keeper.door, keep_step=-1)
    held = a_copy(node, 7)
    link, line = begun(keeper, replace(put_of(held), keep_step=6))
    with link:
        line.receive(Go)
        line.allow(SIZE)
        line.send_bytes(memoryview(Path(seal_path(str(held.path))).read_bytes()))
        line.send_bytes(held.view()[: SIZE // 2])
        keeper.kill()
        with pytest.raises(NotCarried):
            line.receive(Kept)
    keeper.start()
    hand_over(held, keeper.door, keep_step=6)
    assert set(keeper.kept()) == {(1, 6), (1, 7)}
    assert not list(keeper.folder.glob("*.part"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bytes": 1 << 60}, "would be above the limit"),
        ({"seal_bytes": 1 << 60}, "a seal of .* bytes"),
        ({"rank": -1}, "a number is negative"),
        ({"step": 8}, "the seal is of another copy"),
    ],
)
def test_what_is_announced_wrongly_is_refused(
    keeper: KeeperProcess, node: Path, changes: dict[str, int], why: str
) -> None:
    held = a_copy(node, 7, size=64)
    link, line = begun(keeper, replace(put_of(held), **changes))  # type: ignore[arg-type]
    with link, pytest.raises(NotCarried, match=f"refused: .*{why}"):
        _carry(line, held)
    assert not keeper.kept()


def _carry(line: Line, held: Held) -> None:
    line.receive(Go)
    line.send_bytes(memoryview(Path(seal_path(str(held.path))).read_bytes()))
    line.receive(Kept)


def test_what_is_kept_for_others_has_a_limit(tmp_path: Path, node: Path) -> None:
    keeper = Keeper(tmp_path, token="t", kept_bytes_max=100)  # a test's
    keeper._admit(put_of(a_copy(node, 7, size=64)))
    with pytest.raises(NotCarried, match="would be above the limit"):
        keeper._admit(put_of(a_copy(node, 7, rank=1, size=64)))


def test_a_caller_that_says_nothing_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    times = iter([0.0, 0.0, carrying.FIXED_S + 1.0])
    with ours, theirs:
        line = Line(ours, clock=lambda: next(times))
        line.send(Challenge(nonce="n"))
        with pytest.raises(NotCarried, match="it took too long"):
            line.receive(Put)
