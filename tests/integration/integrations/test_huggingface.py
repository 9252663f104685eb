"""Hugging Face's Trainer in real processes: killed in the middle of an epoch, it ends as if it had not been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from evertrain.contract.exits import WorkerExit
from evertrain.integrations.huggingface import require_resumable
from evertrain.integrations.not_exact import NotExact
from support.examples import KILLED, run_example, weights, yielded

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.torch,
    pytest.mark.timeout(300),
]  # processes that import much, several for each test

SCRIPT = "huggingface/train.py"


def _read(folder: Path, rank: int = 0) -> list[int]:
    return [int(line) for line in (folder / f"read-{rank}").read_text().split()]


def test_killed_and_started_again_it_ends_with_the_same_weights_and_reads_nothing_twice_that_was_saved(
    tmp_path: Path,
) -> None:
    # 58 steps are an epoch: the kill is in the second.
    steps = ("--steps", "70", "--save-steps", "5")
    whole = run_example(SCRIPT, *steps, "--out", "whole", folder=tmp_path)
    run_example(SCRIPT, *steps, "--out", "cut", "--die-after", "64", folder=tmp_path, expect=KILLED)
    before = _read(tmp_path / "cut")
    resumed = run_example(SCRIPT, *steps, "--out", "cut", folder=tmp_path)
    assert weights(resumed) == weights(whole)
    undisturbed, after = _read(tmp_path / "whole"), _read(tmp_path / "cut")[len(before) :]
    assert after == undisturbed[-len(after) :], "what was trained on before the save is not even read"
    assert len(after) // 4 in (70 - 60 + 1, 70 - 55 + 1)  # Accelerate fetches one batch ahead


def test_two_ranks_killed_end_with_the_same_weights(tmp_path: Path) -> None:
    steps = ("--steps", "20", "--accumulate", "2")
    whole = run_example(SCRIPT, *steps, "--out", "whole", folder=tmp_path, ranks=2)
    run_example(SCRIPT, *steps, "--out", "cut", "--die-after", "13", folder=tmp_path, ranks=2, expect=1)
    before = len(_read(tmp_path / "cut"))
    assert weights(run_example(SCRIPT, *steps, "--out", "cut", folder=tmp_path, ranks=2)) == weights(whole)
    after = _read(tmp_path / "cut")[before:]
    assert len(after) <= (20 - 10) * 8 + 4, "it went on from step 10, after the evaluation there"


def test_another_world_size_goes_on_with_the_same_global_batch_and_is_refused_with_another(tmp_path: Path) -> None:
    run_example(SCRIPT, "--steps", "10", "--out", "out", folder=tmp_path, ranks=2)
    refused = run_example(SCRIPT, "--steps", "20", "--out", "out", folder=tmp_path, expect=1)
    assert "a step was 8 samples and would now be 4" in refused
    resumed = run_example(SCRIPT, "--steps", "20", "--accumulate", "2", "--out", "out", folder=tmp_path)
    assert "logs 6 " in resumed  # of steps 3 to 18: those before the resume are there
    before = set(_read(tmp_path / "out")[:40]) | set(_read(tmp_path / "out", 1)[:40])
    after = _read(tmp_path / "out")[-84:-4]
    assert len(before | set(after)) == 160, "no sample came twice"


def test_asked_to_leave_it_saves_and_yields(tmp_path: Path) -> None:
    code, committed = yielded(SCRIPT, "--steps", "5000", "--save-steps", "5000", "--out", "out", folder=tmp_path)
    assert code == WorkerExit.YIELDED
    assert Path(committed.path, "manifest.json").exists()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"ignore_data_skip": True}, "ignore_data_skip"),
        ({"load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps"}, "load_best_model"),
        ({"accelerator_config": {"use_seedable_sampler": False}}, "use_seedable_sampler"),
    ],
)
def test_settings_that_change_a_resumed_run_are_refused_before_it_starts(
    setting: dict[str, Any], said: str, tmp_path: Path
) -> None:
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", **setting)
    hf = transformers.Trainer(model=torch.nn.Linear(2, 2), args=args, eval_dataset=[1])
    with pytest.raises(NotExact, match=said):
        require_resumable(hf)
