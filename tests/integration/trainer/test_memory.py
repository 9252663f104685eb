"""Workers die, and their gang goes on from the copies in their node's memory: verified, and newer than storage has."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evertrain.contract import environ
from support.keepers import KeeperProcess
from support.training_gang import Outcome, Scenario, outcome, run

pytestmark = pytest.mark.torch

KILLED = -signal.SIGKILL


@pytest.fixture
def copies(tmp_path: Path) -> Path:
    """What a launcher makes; a folder on a disk does as well for a test."""
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder


@pytest.fixture
def gang(tmp_path: Path, copies: Path) -> Scenario:
    """Two ranks of one node that copy after every step, and save after every fourth."""
    env = {environ.COPIES: str(copies), environ.COPY_EVERY: "1", environ.RESTORE_MEMORY: "1", environ.GENERATION: "1"}
    return Scenario(folder=tmp_path, world_size=2, env=env)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """A rank's outcome of a run in which nothing happens, rank 0's unless told otherwise."""
    known: list[Scenario] = []

    def get(rank: int = 0) -> Outcome:
        if not known:
            scenario = Scenario(folder=tmp_path_factory.mktemp("undisturbed"), world_size=2)
            assert run(scenario) == [0, 0]
            known.append(scenario)
        return outcome(known[0], rank)

    return get


def test_the_newest_copy_that_all_ranks_have_is_restored_bitwise(
    gang: Scenario, undisturbed: Callable[..., Outcome]
) -> None:
    assert run(gang.but(die_after=7, flush_every=1)) == [KILLED] * 2
    assert run(gang) == [0, 0]
    resumed = outcome(gang)
    assert resumed.start == 7, "storage has step 4"
    assert resumed.weights_sha256 == undisturbed().weights_sha256
    assert resumed.draws == undisturbed().draws


def test_nodes_restore_each_from_its_own_memory(gang: Scenario, undisturbed: Callable[..., Outcome]) -> None:
    assert run(gang.but(die_after=7, flush_every=1, apart=True)) == [KILLED] * 2
    assert run(gang.but(apart=True)) == [0, 0]
    assert outcome(gang).start == outcome(gang, 1).start == 7
    assert outcome(gang).weights_sha256 == outcome(gang, 1).weights_sha256 == undisturbed().weights_sha256


def test_a_node_that_is_new_makes_all_restore_from_storage(gang: Scenario, copies: Path) -> None:
    assert run(gang.but(die_after=7, flush_every=1, apart=True)) == [KILLED] * 2
    shutil.rmtree(copies / "1")
    assert run(gang.but(apart=True)) == [0, 0]
    assert outcome(gang).start == 4


def test_a_copy_that_rotted_is_not_restored_and_an_older_one_is(
    gang: Scenario, copies: Path, undisturbed: Callable[..., Outcome]
) -> None:
    assert run(gang.but(die_after=7, flush_every=1)) == [KILLED] * 2
    newest = max(copies.glob("copy-00001-*-[0-9]"), key=lambda path: Path(f"{path}.seal").stat().st_mtime_ns)
    with newest.open("r+b") as file:
        file.write(b"rotten")
    assert run(gang) == [0, 0]
    resumed = outcome(gang)
    assert resumed.start == 6
    assert any("copies in memory of step 7 are not used" in warning for warning in resumed.warnings)
    assert resumed.weights_sha256 == undisturbed().weights_sha256


def test_a_rank_without_a_copy_makes_all_restore_from_storage(gang: Scenario, copies: Path) -> None:
    assert run(gang.but(die_after=7, flush_every=1)) == [KILLED] * 2
    for path in copies.glob("copy-00001-*.seal"):
        path.unlink()
    assert run(gang) == [0, 0]
    assert outcome(gang).start == 4


def test_another_world_size_restores_from_storage(gang: Scenario) -> None:
    assert run(gang.but(die_after=7, flush_every=1)) == [KILLED] * 2
    assert run(gang.but(world_size=1)) == [0]
    assert outcome(gang).start == 4


def test_copies_of_a_generation_that_was_given_up_are_not_restored(gang: Scenario) -> None:
    assert run(gang.but(die_after=7, flush_every=1)) == [KILLED] * 2
    assert run(gang.but(env={**gang.env, environ.RESTORE_MEMORY: "2"})) == [0, 0]
    assert outcome(gang).start == 4


@pytest.fixture
def keepers(copies: Path) -> Iterator[tuple[KeeperProcess, KeeperProcess]]:
    """One beside each of two nodes' memory."""
    with KeeperProcess(copies / "0") as first, KeeperProcess(copies / "1") as second:
        yield first, second


def test_a_node_that_is_new_gets_its_part_from_the_node_that_kept_it(
    gang: Scenario, undisturbed: Callable[..., Outcome], keepers: tuple[KeeperProcess, KeeperProcess]
) -> None:
    gang = gang.but(apart=True, kept=True)
    assert run(gang.but(die_after=7, flush_every=1)) == [KILLED] * 2
    for path in keepers[1].folder.glob("*-*"):
        path.unlink()
    assert run(gang) == [0, 0]
    assert outcome(gang).start == outcome(gang, 1).start == 7, "storage has step 4"
    assert outcome(gang).weights_sha256 == outcome(gang, 1).weights_sha256 == undisturbed().weights_sha256
    assert outcome(gang, 1).draws == undisturbed(1).draws, "with its generators where they were"


def test_when_two_nodes_are_new_of_which_one_kept_the_others_copies_all_restore_from_storage(
    gang: Scenario, keepers: tuple[KeeperProcess, KeeperProcess]
) -> None:
    gang = gang.but(apart=True, kept=True)
    assert run(gang.but(die_after=7, flush_every=1)) == [KILLED] * 2
    for path in (*keepers[1].folder.glob("*-*"), *keepers[0].folder.glob("kept-*")):
        path.unlink()
    assert run(gang) == [0, 0]
    assert outcome(gang).start == 4


def test_a_keeper_that_is_gone_makes_all_restore_from_storage(
    gang: Scenario, keepers: tuple[KeeperProcess, KeeperProcess]
) -> None:
    gang = gang.but(apart=True, kept=True)
    assert run(gang.but(die_after=7, flush_every=1)) == [KILLED] * 2
    keepers[0].kill()
    keepers[0].listener.close()
    for path in keepers[1].folder.glob("*-*"):
        path.unlink()
    assert run(gang) == [0, 0]
    assert outcome(gang).start == 4
    assert any("is not used" in text or "are not used" in text for text in outcome(gang).warnings)
