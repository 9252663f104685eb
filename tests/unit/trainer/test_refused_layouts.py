"""States that have no exact form here: refused by name, at the first save, before anything is committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from evertrain.checkpoint.manifest import CheckpointManifest
from evertrain.checkpoint.storage.memory import MemoryStorage
from evertrain.checkpoint.writing import Note, SaveFailed, commit, leave_note
from evertrain.trainer.parts import Parts
from evertrain.trainer.pieces import NotSaveable, pieces_of
from support.checkpoints import write_checkpoint


class Interleaved:
    """A sharded tensor of which this rank holds two boxes."""

    shape = torch.Size((4,))

    def to_local(self) -> torch.Tensor:
        return torch.zeros(2)

    def __create_chunk_list__(self) -> list[Any]:
        return [SimpleNamespace(offsets=(at,), sizes=(1,)) for at in (0, 2)]


def test_several_boxes_of_a_tensor_on_one_rank_are_refused_by_name() -> None:
    with pytest.raises(NotSaveable, match="model/w is sharded into 2 boxes on one rank"):
        pieces_of("model/w", cast(torch.Tensor, Interleaved()))


def test_stages_of_a_pipeline_with_different_modules_are_refused_by_the_name_of_the_part() -> None:
    stages = [torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.ModuleDict({"head": torch.nn.Linear(2, 2)})]
    storage = MemoryStorage()
    manifest = write_checkpoint(storage, world_size=2).manifest
    folder = str(manifest.name)
    for rank, stage in enumerate(stages):
        optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
        state = Parts(stateful={"model": stage, "optimizer": optimizer}).capture({"step": 1}, rng={}, rank=rank)
        alike = {part: text for part, text in state.values.items() if part not in state.own}
        leave_note(storage, folder, Note(rank=rank, shard=manifest.shards[rank], alike=alike))
    draft = CheckpointManifest(job="j", generation=3, step=120, tokens=0, world_size=2, torch_version="2")
    with pytest.raises(SaveFailed, match=r"model differs between rank 0 and rank 1: .* declared with per_rank"):
        commit(storage, folder, draft, deadline_s=1.0)
