"""What a job promises of its run, held against what the script declares; what the run's record hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from evertrain.contract.beacon import Noted
from evertrain.trainer.data import Accumulation, BatchNotKept
from evertrain.trainer.parts import Parts
from evertrain.trainer.peers import Message, Peers
from evertrain.trainer.promise import require_kept
from evertrain.trainer.reproducible import NotReproducible, Reproducible
from evertrain.trainer.session import Session
from evertrain.trainer.settings import Settings
from support.beacon_listener import BeaconListener


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[BeaconListener]:
    launcher = BeaconListener(tmp_path / "beacon.sock")
    yield launcher
    launcher.close()


@pytest.fixture(autouse=True)
def torchs_own_kernels() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def notes(launcher: BeaconListener) -> list[tuple[str, bool]]:
    return [(each.what, each.departs) for each in launcher.accept().read_all() if isinstance(each, Noted)]


def exactly(microbatches: int) -> Parts:
    return Parts(stateful={"exact": Reproducible(nn.Linear(1, 1), microbatches=microbatches, seed=1)})


class Gathered(Peers):
    """A gang in which another rank says ``theirs``."""

    def __init__(self, theirs: Message) -> None:
        super().__init__(rank=0, world_size=2)
        self._theirs = theirs

    def gather(self, message: Message) -> list[Message]:
        return [message, self._theirs]


def test_a_script_that_keeps_the_promise_has_deterministic_kernels_and_a_note_of_what_its_bits_depend_on(
    launcher: BeaconListener,
) -> None:
    with Session(Settings(beacon=str(launcher.path), microbatches=4)) as job:
        assert torch.are_deterministic_algorithms_enabled()
        model = nn.Linear(1, 1)
        exact = Reproducible(model, microbatches=job.microbatches, seed=1)
        job.state(model=model, optimizer=None, extra={"exact": exact}).restore()
    ((what, departs),) = notes(launcher)
    assert what.startswith(f"reproducible, 4 microbatches a step; torch {torch.__version__}, device cpu")
    assert not departs


def test_a_script_without_reproducible_steps_is_refused_at_its_start() -> None:
    with Session(Settings(microbatches=4)) as job, pytest.raises(NotReproducible, match="declares no reproducible"):
        job.state(model=nn.Linear(1, 1), optimizer=None).restore()
    with Session(Settings(microbatches=4)) as job, pytest.raises(NotReproducible, match="declares no reproducible"):
        job.step_done(1)


def test_another_number_of_microbatches_is_refused() -> None:
    with pytest.raises(NotReproducible, match=r"rank 0: the script makes 3 microbatches of a step, .* says 4"):
        require_kept(exactly(3), Peers(), microbatches=4)


def test_ranks_on_other_devices_or_with_other_threads_are_refused() -> None:
    here = dict(Reproducible(nn.Linear(1, 1), microbatches=4, seed=1).surroundings)
    require_kept(exactly(4), Gathered({"trouble": "", "here": here}), microbatches=4)
    for name, value in (("device", "NVIDIA H200"), ("threads", 99)):
        theirs = {"trouble": "", "here": here | {name: value}}
        with pytest.raises(NotReproducible, match=rf"rank 1 cannot give the bits .*{name} was .*, is {value}"):
            require_kept(exactly(4), Gathered(theirs), microbatches=4)


def test_a_restore_elsewhere_is_a_departure_that_the_record_hears_of(launcher: BeaconListener, tmp_path: Path) -> None:
    def train(beacon: str, threads: int) -> None:
        with Session(Settings(beacon=beacon, checkpoint_dir=str(tmp_path / "ck"), generation=threads)) as job:
            model = nn.Linear(1, 1)
            exact = Reproducible(model, microbatches=2, seed=1)
            exact._here["threads"] = threads
            state = job.state(model=model, optimizer=None, extra={"exact": exact})
            start = state.restore()
            job.step_done(start + 1, save=True)

    train("", 1)
    (folder,) = (tmp_path / "ck").iterdir()
    settings = Settings(beacon=str(launcher.path), restore_path=str(folder), generation=2)
    with Session(settings) as job:
        model = nn.Linear(1, 1)
        exact = Reproducible(model, microbatches=2, seed=1)
        exact._here["threads"] = 2
        job.state(model=model, optimizer=None, extra={"exact": exact}).restore()
    assert notes(launcher) == [("since step 1 threads was 1, is 2", True)]


def test_how_the_global_batch_is_kept_is_noted_and_that_it_is_not_is_a_departure(launcher: BeaconListener) -> None:
    with Session(Settings(beacon=str(launcher.path), world_size=6)) as job:
        assert job.accumulation(global_batch=48, microbatch=4) == Accumulation(
            global_batch=48, microbatch=4, rank=0, world_size=6
        )
        with pytest.raises(BatchNotKept):
            job.accumulation(global_batch=5, microbatch=1)
    assert notes(launcher) == [
        ("global batch of 48 kept by 6 workers, 2 microbatches each", False),
        ("a global batch of 5 leaves 1 of 6 ranks without a sample: let the gang have at most 5 of them", True),
    ]
