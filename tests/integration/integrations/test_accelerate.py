"""A loop with Accelerate in real processes: killed in the middle of an epoch, it ends as if it had not been."""

from __future__ import annotations

from pathlib import Path

import accelerate
import pytest
import torch

from evertrain import trainer
from evertrain.contract.exits import WorkerExit
from evertrain.integrations.accelerate import Run
from evertrain.integrations.not_exact import NotExact
from support.examples import KILLED, run_example, weights, yielded

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.torch,
    pytest.mark.timeout(300),
]  # processes that import much, several for each test

SCRIPT = "accelerate/train.py"
PER_EPOCH = 36
"""Steps of one rank."""


def _read(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "read-0").read_text().split()]


def test_killed_and_started_again_it_ends_with_the_same_weights_and_reads_nothing_twice_that_was_saved(
    tmp_path: Path,
) -> None:
    whole = run_example(SCRIPT, "--out", "whole", folder=tmp_path)
    run_example(SCRIPT, "--out", "cut", "--die-after", "52", folder=tmp_path, expect=KILLED)
    before = _read(tmp_path / "cut")
    assert weights(run_example(SCRIPT, "--out", "cut", folder=tmp_path)) == weights(whole)
    after = _read(tmp_path / "cut")[len(before) :]
    assert len(after) == (3 * PER_EPOCH - 50) * 8
    assert after == _read(tmp_path / "whole")[-len(after) :]


def test_killed_between_two_epochs_it_begins_with_the_next(tmp_path: Path) -> None:
    whole = run_example(SCRIPT, "--epochs", "2", "--save-every", "36", "--out", "whole", folder=tmp_path)
    cut = ("--epochs", "2", "--save-every", "36", "--out", "cut")
    run_example(SCRIPT, *cut, "--die-after", "36", folder=tmp_path, expect=KILLED)
    assert weights(run_example(SCRIPT, *cut, folder=tmp_path)) == weights(whole)


def test_two_ranks_killed_end_with_the_same_weights_and_one_rank_can_go_on_with_the_same_global_batch(
    tmp_path: Path,
) -> None:
    whole = run_example(SCRIPT, "--out", "whole", folder=tmp_path, ranks=2)
    run_example(SCRIPT, "--out", "cut", "--die-after", "22", folder=tmp_path, ranks=2, expect=1)
    (tmp_path / "alone").symlink_to(tmp_path / "cut")
    refused = run_example(SCRIPT, "--out", "alone", folder=tmp_path, expect=1)
    assert "a step's samples was 16 and would now be 8" in refused
    assert weights(run_example(SCRIPT, "--out", "cut", folder=tmp_path, ranks=2)) == weights(whole)
    alone = run_example(SCRIPT, "--out", "alone", "--epochs", "4", "--accumulate", "2", folder=tmp_path)
    assert "steps 72" in alone


def test_asked_to_leave_it_saves_and_yields(tmp_path: Path) -> None:
    code, committed = yielded(SCRIPT, "--epochs", "5000", "--save-every", "100000", "--out", "out", folder=tmp_path)
    assert code == WorkerExit.YIELDED
    assert Path(committed.path, "manifest.json").exists()


def test_an_order_that_does_not_follow_from_the_seed_is_refused_before_it_starts() -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainer.session() as job, pytest.raises(NotExact, match="use_seedable_sampler"):
        Run(accelerator, job, model=model, optimizer=optimizer, loader=None)


@pytest.mark.parametrize("form", ["FSDP", "DEEPSPEED"])
def test_a_state_in_a_form_of_its_own_is_refused_before_it_starts(form: str) -> None:
    accelerator = accelerate.Accelerator(
        cpu=True, dataloader_config=accelerate.DataLoaderConfiguration(use_seedable_sampler=True)
    )
    accelerator.state.distributed_type = accelerate.DistributedType(form)
    try:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with trainer.session() as job, pytest.raises(NotExact, match=f"{form}, which keeps its state in a form"):
            Run(accelerator, job, model=model, optimizer=optimizer, loader=None)
    finally:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
