"""Lightning in real processes: killed anywhere in an epoch, it ends as if it had not been."""

from __future__ import annotations

import shutil
from pathlib import Path

import lightning
import pytest
import torch

from evertrain.contract.exits import WorkerExit
from evertrain.integrations.lightning import StepLoader, require_resumable
from evertrain.integrations.not_exact import NotExact
from evertrain.trainer.data import ElasticSampler
from support.examples import KILLED, run_example, weights, yielded

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.torch,
    pytest.mark.timeout(300),
]  # processes that import much, several for each test

SCRIPT = "lightning/train.py"
PER_EPOCH, BATCH = 33, 16


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[int]]:
    """The weights of a run on one rank, and what it read."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return weights(run_example(SCRIPT, "--out", "out", folder=folder)), _read(folder / "out")


def _read(folder: Path, rank: int = 0) -> list[int]:
    return [int(line) for line in (folder / f"read-{rank}").read_text().split()]


@pytest.mark.parametrize(("die_after", "save_every"), [(47, 5), (PER_EPOCH, PER_EPOCH)])
def test_killed_in_an_epoch_or_at_its_end_it_ends_with_the_same_weights_and_samples(
    undisturbed: tuple[str, list[int]], die_after: int, save_every: int, tmp_path: Path
) -> None:
    arguments = ("--save-every", str(save_every), "--out", "cut")
    run_example(SCRIPT, *arguments, "--die-after", str(die_after), folder=tmp_path, expect=KILLED)
    before = len(_read(tmp_path / "cut"))
    assert weights(run_example(SCRIPT, *arguments, folder=tmp_path)) == undisturbed[0]
    after = _read(tmp_path / "cut")[before:]
    assert after == undisturbed[1][(die_after // save_every) * save_every * BATCH :]


def test_two_ranks_killed_end_with_the_same_weights_and_one_rank_can_go_on_with_the_same_samples(
    undisturbed: tuple[str, list[int]], tmp_path: Path
) -> None:
    whole = run_example(SCRIPT, "--out", "whole", folder=tmp_path, ranks=2)
    run_example(SCRIPT, "--out", "cut", "--die-after", "42", folder=tmp_path, ranks=2, expect=1)
    shutil.copytree(tmp_path / "cut", tmp_path / "alone")
    assert weights(run_example(SCRIPT, "--out", "cut", folder=tmp_path, ranks=2)) == weights(whole)
    before = len(_read(tmp_path / "alone"))
    run_example(SCRIPT, "--out", "alone", folder=tmp_path)
    assert _read(tmp_path / "alone")[before:] == undisturbed[1][40 * BATCH :]


def test_asked_to_leave_it_saves_and_yields(tmp_path: Path) -> None:
    code, committed = yielded(SCRIPT, "--epochs", "5000", "--save-every", "100000", "--out", "out", folder=tmp_path)
    assert code == WorkerExit.YIELDED
    assert Path(committed.path, "manifest.json").exists()


def test_what_cannot_be_resumed_exactly_is_refused_before_it_starts() -> None:
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, reload_dataloaders_every_n_epochs=1
    )
    with pytest.raises(NotExact, match="reload_dataloaders_every_n_epochs"):
        require_resumable(trainer)


def test_a_loader_goes_on_at_any_step_and_draws_no_random_number_of_the_scripts() -> None:
    def loader(step: int) -> StepLoader:
        made = StepLoader(range(50), ElasticSampler(50, 8, seed=3))
        made.load_state_dict({"step": step})
        return made

    whole = loader(0)
    epochs = [[batch.tolist() for batch in whole] for _ in range(2)]
    assert [len(epoch) for epoch in epochs] == [6, 6]
    assert epochs[0] != epochs[1]
    torch.manual_seed(1)
    stands = torch.get_rng_state()
    assert [batch.tolist() for batch in loader(4)] == epochs[0][4:]
    assert [batch.tolist() for batch in loader(6)] == epochs[1]
    assert torch.equal(torch.get_rng_state(), stands)
