"""Real gangs in reproducible mode: the same bits at every world size, after a resize, and when gradients misbehave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.reproducible_gang import Result, Run, Wrapping, die, run

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Wrapping], Result]:
    """The result of one rank, undisturbed, by wrapping."""
    known: dict[Wrapping, Result] = {}

    def get(wrapping: Wrapping) -> Result:
        if wrapping not in known:
            known[wrapping] = run(Run(folder=tmp_path_factory.mktemp("alone"), wrapping=wrapping))
        return known[wrapping]

    return get


@pytest.mark.parametrize(
    ("wrapping", "world_size"),
    [
        *((Wrapping.PLAIN, size) for size in (2, 3, 8)),
        *((Wrapping.DDP, size) for size in (2, 3, 4, 8)),
        *((Wrapping.FSDP, size) for size in (2, 3, 4, 8)),
        (Wrapping.FSDP_BF16, 3),
    ],
)
def test_weights_losses_and_norms_are_bitwise_those_of_one_rank(
    tmp_path: Path, wrapping: Wrapping, world_size: int, alone: Callable[[Wrapping], Result]
) -> None:
    assert run(Run(folder=tmp_path, wrapping=wrapping, world_size=world_size)) == alone(wrapping)


def test_copies_of_shards_give_the_bits_of_shards(tmp_path: Path, alone: Callable[[Wrapping], Result]) -> None:
    assert run(Run(folder=tmp_path, wrapping=Wrapping.HSDP, world_size=4)) == alone(Wrapping.FSDP)


def test_ddp_gives_the_bits_of_a_plain_module(alone: Callable[[Wrapping], Result]) -> None:
    assert alone(Wrapping.DDP) == alone(Wrapping.PLAIN)


def test_summed_in_floating_point_the_world_size_shows(tmp_path: Path) -> None:
    floating = Run(folder=tmp_path, fixed_point=False)
    assert run(floating).weights_sha256 != run(floating.but(world_size=3)).weights_sha256


@pytest.mark.parametrize("wrapping", [Wrapping.DDP, Wrapping.FSDP])
def test_a_run_resumed_at_other_world_sizes_ends_with_the_bits_of_an_undisturbed_one(
    tmp_path: Path, wrapping: Wrapping, alone: Callable[[Wrapping], Result]
) -> None:
    part = Run(folder=tmp_path, wrapping=wrapping, world_size=4, steps=1)
    run(part)
    run(part.but(world_size=3, resume=True, steps=2))
    assert run(part.but(world_size=2, resume=True)).weights_sha256 == alone(wrapping).weights_sha256


def test_kills_in_the_midst_of_steps_and_resizes_between_them_leave_no_trace(tmp_path: Path) -> None:
    faults = Run(folder=tmp_path / "faults", wrapping=Wrapping.DDP, until=9, save_every=2, resume=True)
    faults.folder.mkdir()
    for die_in, world_size in ((1, 3), (3, 5), (4, 1), (6, 2), (7, 4)):
        die(faults.but(die_in=die_in, world_size=world_size))
    (tmp_path / "undisturbed").mkdir()
    undisturbed = run(Run(folder=tmp_path / "undisturbed", wrapping=Wrapping.DDP, until=9))
    assert run(faults.but(world_size=3)).weights_sha256 == undisturbed.weights_sha256


@pytest.mark.parametrize("wrapping", [Wrapping.DDP, Wrapping.FSDP])
def test_a_sudden_spike_is_computed_again_alike_at_every_world_size(tmp_path: Path, wrapping: Wrapping) -> None:
    spiking = Run(folder=tmp_path, wrapping=wrapping, spike_at=2)
    one, three = run(spiking), run(spiking.but(world_size=3))
    assert one == three
    assert one.again == 3, "the first step, the spike, and the one after it"


@pytest.mark.parametrize("wrapping", [Wrapping.DDP, Wrapping.FSDP])
def test_nan_of_one_microbatch_reaches_every_rank_alike(tmp_path: Path, wrapping: Wrapping) -> None:
    broken = Run(folder=tmp_path, wrapping=wrapping, nan_at=3)
    one, three = run(broken), run(broken.but(world_size=3))
    assert one == three
    assert not one.finite
    assert one.norms[3] == one.losses[3] == -1.0
