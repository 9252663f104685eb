"""What reproducible mode says of wrapped models that it can't sum exactly, or that are used outside of a step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from evertrain.trainer import reproducible

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path) -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _sharded() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    return model


def test_a_backward_pass_outside_of_a_step_is_an_error_in_ddp() -> None:
    model = DistributedDataParallel(nn.Linear(3, 1))
    reproducible.Reproducible(model, microbatches=2, seed=1)
    with pytest.raises(reproducible.OutsideStep):
        torch.autograd.backward(model(torch.ones(2, 3)).sum())


def test_a_backward_pass_outside_of_a_step_is_an_error_in_fsdp() -> None:
    model = _sharded()
    reproducible.Reproducible(model, microbatches=2, seed=1)
    with pytest.raises(reproducible.OutsideStep):
        torch.autograd.backward(model(torch.ones(2, 3)).sum())


def test_a_static_graph_is_refused() -> None:
    model = DistributedDataParallel(nn.Linear(3, 1), static_graph=True)
    with pytest.raises(reproducible.Unsupported, match="static_graph"):
        reproducible.Reproducible(model, microbatches=2, seed=1)


def test_a_model_that_is_sharded_in_parts_only_is_refused() -> None:
    model = nn.Sequential(_sharded(), nn.Linear(1, 1))
    with pytest.raises(reproducible.Unsupported, match="call fully_shard on the model, too"):
        reproducible.Reproducible(model, microbatches=2, seed=1)


def test_copies_of_a_single_shard_are_refused() -> None:
    model = nn.Linear(3, 1)
    fully_shard(model, mesh=init_device_mesh("cpu", (1, 1), mesh_dim_names=("copies", "shards")))
    with pytest.raises(reproducible.Unsupported, match="copies of several shards"):
        reproducible.Reproducible(model, microbatches=2, seed=1)


def test_a_checkpoint_of_a_plain_model_is_refused_by_its_sharded_form() -> None:
    plain = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    state = reproducible.Reproducible(plain, microbatches=2, seed=1).state_dict()
    with pytest.raises(reproducible.SettingsChanged, match="another way to shard it"):
        reproducible.Reproducible(_sharded(), microbatches=2, seed=1).load_state_dict(state)
