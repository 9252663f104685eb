"""What a gang saved is corrupted in a thousand ways: the trainer restores the checkpoint before it, bit for bit."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import nn

from evertrain import trainer
from evertrain.checkpoint.manifest import MANIFEST_NAME, decode_manifest, sha256
from evertrain.trainer.parts import Parts
from evertrain.trainer.peers import Peers
from evertrain.trainer.resume import Candidate, Resume
from support.checkpoints import Checkpoint
from support.corruptions import Corruption, Victim, corrupt
from support.training_gang import BATCH, SAMPLES, Scenario, run

pytestmark = pytest.mark.torch

CORRUPTIONS: Final = 1000
SHARES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What two ranks saved: the newest, and the one before, which stays as it is."""

    victim: Victim
    good: Path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    ours, theirs = (Scenario(folder=tmp_path_factory.mktemp(name), world_size=2) for name in ("ours", "theirs"))
    assert run(ours) == [0, 0]
    # Another seed, so that nothing but the names is alike.
    assert run(theirs.but(env={"EVERTRAIN_JOB_ID": "theirs"})) == [0, 0]
    older, good, newest = sorted(ours.checkpoints.iterdir())
    foreign = sorted(theirs.checkpoints.rglob(newest.name))[0]
    files = files_of(newest)
    written = Checkpoint(
        folder=newest.name,
        digest=sha256(files[MANIFEST_NAME]),
        manifest=decode_manifest(files[MANIFEST_NAME]),
        tensors=(),
    )
    victim = Victim(written=written, files=files, others=(files_of(older), files_of(good), files_of(foreign)))
    return Saved(victim=victim, good=good)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("share", range(SHARES))
def test_none_of_a_thousand_corruptions_is_restored_and_the_one_before_is_each_time(
    saved: Saved, tmp_path: Path, share: int
) -> None:
    untouched = lay_out(
        Corruption(kind="none", files=dict(saved.victim.files), name=saved.victim.name), tmp_path / "as-saved"
    )
    true = [restored(Candidate(path=str(folder)))[1] for folder in (untouched, saved.good)]
    assert not torch.equal(true[0]["0.weight"], true[1]["0.weight"])
    for seed in range(share, CORRUPTIONS, SHARES):
        corruption = corrupt(saved.victim, random.Random(seed))
        newest = lay_out(corruption, tmp_path / "ck")
        digest = saved.victim.written.digest if corruption.foreign else ""
        candidates = Candidate(path=str(newest), digest=digest), Candidate(path=str(saved.good))
        # Between them both ranks need every byte, and a gang restores what all its ranks find sound.
        outcomes = [restored(*candidates, rank=rank) for rank in range(2)]
        refused = any(parent == str(saved.good) for parent, _ in outcomes)
        assert refused != harmless(corruption, saved.victim), f"seed {seed}: {corruption}"
        for parent, found in outcomes:
            expected = true[parent == str(saved.good)]
            assert all(torch.equal(found[name], expected[name]) for name in expected), f"seed {seed}: {corruption}"


def lay_out(corruption: Corruption, root: Path) -> Path:
    """The corrupt files, in a folder of their own."""
    shutil.rmtree(root, ignore_errors=True)
    folder = root / corruption.name
    folder.mkdir(parents=True)
    for name, data in corruption.files.items():
        (folder / name).write_bytes(data)
    return folder


def harmless(corruption: Corruption, victim: Victim) -> bool:
    """Whether all that was written is there, and something else besides: only a verification refuses it."""
    return corruption.name == victim.name and all(
        corruption.files.get(name, b"")[: len(data) if name.endswith(".bin") else None] == data
        for name, data in victim.files.items()
    )


def restored(*candidates: Candidate, rank: int = 0) -> tuple[str, dict[str, torch.Tensor]]:
    """The checkpoint that a rank of a new gang restores, and the model's tensors after it."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    stateful: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[5, 9]),
        "sampler": trainer.data.ElasticSampler(SAMPLES, BATCH, seed=1),
    }
    parts = Parts(stateful=stateful, config={"hidden": 16})
    resumed = Resume(parts, Peers(rank=rank), job="", warn=lambda text: None).from_storage(candidates, managed=False)
    assert resumed is not None
    return resumed.parent.path, {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
