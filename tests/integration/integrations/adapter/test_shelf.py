"""Real files of torch.save and DCP, damaged as they are in the field: which are used, which stay."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_dcp

from evertrain.checkpoint import sealed as seal
from evertrain.checkpoint.sealed import NotWhole, files_of
from evertrain.contract.adapter import SaveKind
from evertrain.integrations.adapter.contents import inspect
from evertrain.integrations.adapter.shelf import Shelf, expired
from evertrain.integrations.adapter.spec import AdapterSpec, BadSpec
from evertrain.integrations.adapter.watch import Watch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:Detected an existing checkpoint:UserWarning"),
]

SECOND_NS = 1_000_000_000


class Script:
    """Saves as scripts do, into a folder of its own; each save is a minute later than the one before."""

    def __init__(self, folder: Path, kind: SaveKind) -> None:
        self.folder, self.kind = folder, kind
        self._now_ns = 1_700_000_000 * SECOND_NS

    def spec(self, **changes: Any) -> AdapterSpec:
        """What an adapter is told of it."""
        suffix = ".pt" if self.kind is SaveKind.TORCH_SAVE else ""
        settings: dict[str, Any] = {"kind": self.kind, "pattern": f"{self.folder}/step-{{step}}{suffix}"}
        if self.kind is SaveKind.FOLDER:
            settings |= {"marker": "DONE", "require": ("optimizer.pt", "data.json")}
        return AdapterSpec(**(settings | changes))

    def shelf(self, **changes: Any) -> Shelf:
        return Shelf(self.spec(**changes))

    def save(self, step: int, *, inner_step: int | None = None, seed: int | None = None) -> Path:
        """One checkpoint."""
        generator = torch.Generator().manual_seed(step if seed is None else seed)
        weights = torch.randn(64, 16, generator=generator)
        state = {"weights": weights, "step": step if inner_step is None else inner_step}
        path = self.folder / f"step-{step}"
        match self.kind:
            case SaveKind.TORCH_SAVE:
                path = path.with_name(path.name + ".pt")
                torch.save(state, path)
            case SaveKind.DCP:
                save_dcp(state, checkpoint_id=path, no_dist=True)
            case SaveKind.FOLDER:
                path.mkdir(exist_ok=True)
                torch.save(weights, path / "model.pt")
                torch.save(weights * 2, path / "optimizer.pt")
                (path / "data.json").write_text('{"position": 3}')
                (path / "DONE").touch()
        self._now_ns += 60 * SECOND_NS
        self.touch(path)
        return path

    def touch(self, path: Path) -> None:
        """Give all files of a checkpoint the time of its save."""
        for file in files_of(path):
            os.utime(file, ns=(self._now_ns, self._now_ns))


@pytest.fixture(params=list(SaveKind))
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    return Script(tmp_path, request.param)


OWN_FORMAT = pytest.mark.parametrize("script", [SaveKind.TORCH_SAVE, SaveKind.DCP], indirect=True)
"""Kinds whose files tell what they hold."""


@pytest.fixture
def torch_script(tmp_path: Path) -> Script:
    return Script(tmp_path, SaveKind.TORCH_SAVE)


@pytest.fixture
def dcp_script(tmp_path: Path) -> Script:
    return Script(tmp_path, SaveKind.DCP)


@pytest.fixture
def folder_script(tmp_path: Path) -> Script:
    return Script(tmp_path, SaveKind.FOLDER)


def _newest(shelf: Shelf) -> str:
    good, _ = shelf.newest_good()
    return good.path.name.removesuffix(".pt") if good is not None else ""


def _reason(shelf: Shelf) -> str:
    """Of the one that was passed over; it is still there."""
    _, (skipped,) = shelf.newest_good()
    assert skipped.path.exists(), "kept for a person to look at"
    return skipped.reason


def _data_file(path: Path) -> Path:
    """A file with tensors of a checkpoint."""
    return max(files_of(path), key=lambda file: (file.suffix in (".pt", ".distcp"), file.name))


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(bytes(data))


# -- the highest number is not the newest good one


def test_the_newest_whole_one_is_found_and_sealed(script: Script) -> None:
    script.save(100)
    path = script.save(200)
    assert _newest(script.shelf()) == "step-200"
    found = seal.read(path)
    assert found is not None
    assert (found.step, found.kind) == (200, script.kind)


@pytest.mark.parametrize("sealed", [False, True])
def test_one_byte_short_it_is_passed_over(script: Script, sealed: bool) -> None:
    script.save(100)
    torn = script.save(200)
    if sealed:
        script.shelf().seal(torn)
    file = _data_file(torn)
    os.truncate(file, file.stat().st_size - 1)
    script.touch(torn)
    assert _newest(script.shelf()) == "step-100"
    assert file.name in _reason(script.shelf())


def test_a_flipped_bit_is_found_before_and_after_the_seal(script: Script) -> None:
    script.save(100)
    rotten = script.save(200)
    shelf = script.shelf()
    if script.kind is not SaveKind.FOLDER:
        whole = _data_file(rotten).read_bytes()
        _flip(_data_file(rotten), len(whole) // 3)
        script.touch(rotten)
        assert _newest(shelf) == "step-100"
        _data_file(rotten).write_bytes(whole)
        script.touch(rotten)
    shelf.seal(rotten)
    _flip(_data_file(rotten), _data_file(rotten).stat().st_size // 3)
    assert _newest(shelf) == "step-100"
    assert "digest" in _reason(shelf)


def test_a_missing_shard_metadata_or_data_state_is_named(dcp_script: Script, folder_script: Script) -> None:
    dcp_script.save(100)
    path = dcp_script.save(200)
    (path / "__0_0.distcp").rename(path / "elsewhere")
    assert "__0_0.distcp is missing" in _reason(dcp_script.shelf())
    (path / ".metadata").rename(path / ".metadata.tmp")  # what a kill before the last rename leaves
    assert ".metadata is missing" in _reason(dcp_script.shelf())
    assert _newest(dcp_script.shelf()) == "step-100"


@pytest.mark.parametrize("gone", ["optimizer.pt", "data.json", "DONE"])
def test_a_folder_without_a_part_or_its_marker_is_passed_over(folder_script: Script, gone: str) -> None:
    folder_script.save(100)
    (folder_script.save(200) / gone).unlink()
    assert _newest(folder_script.shelf()) == "step-100"
    assert f"{gone} is missing" in _reason(folder_script.shelf())


def test_a_file_under_its_temporary_name_is_no_checkpoint(script: Script) -> None:
    script.save(100)
    path = script.save(200)
    path.rename(path.with_name(path.name + ".tmp"))
    good, skipped = script.shelf().newest_good()
    assert (good.path.name.partition(".")[0] if good else "", skipped) == ("step-100", [])


@OWN_FORMAT
def test_the_step_inside_has_to_be_that_of_the_name(script: Script) -> None:
    script.save(100)
    script.save(200, inner_step=203)
    assert _newest(script.shelf(step_key="step")) == "step-100"
    assert "its name says step 200, its contents say 203" in _reason(script.shelf(step_key="step"))
    assert _newest(script.shelf()) == "step-200"  # who does not tell where the step is cannot have it compared


@OWN_FORMAT
def test_the_tensors_of_the_step_before_under_a_new_name_are_stale(script: Script) -> None:
    script.shelf().seal(script.save(100, seed=1))
    script.save(200, seed=1)
    assert _newest(script.shelf()) == "step-100"
    assert "stale" in _reason(script.shelf())


# -- whose they are


def test_a_higher_number_of_an_older_run_is_neither_used_nor_counted_nor_removed(script: Script) -> None:
    old = script.save(5000)
    script.shelf(run="before").begin()
    os.utime(next(script.folder.glob(".evertrain-run-*")), ns=(0, 0))
    script.shelf(run="before").seal(old)
    unsealed = script.save(6000)
    now = script.shelf(run="now", keep_last=1)
    now.begin()
    since_ns = max(file.stat().st_mtime_ns for file in script.folder.glob(".evertrain-run-*"))
    script._now_ns = since_ns
    assert now.newest_good() == (None, []), "nothing to resume from, rather than another run's"
    for step in (300, 400):
        made = [now.seal(script.save(step))]
        now.expire(made)
    assert _newest(now) == "step-400"
    assert old.exists()
    assert unsealed.exists()
    assert [one.path.name.partition(".")[0] for one in now.sealed()] == ["step-400"]


def test_newest_is_what_was_written_last_though_another_has_a_higher_number(script: Script) -> None:
    shelf = script.shelf(keep_last=1)
    shelf.seal(script.save(5000))
    made = shelf.seal(script.save(300))  # the run went back
    assert _newest(shelf) == "step-300"
    assert [path.name.partition(".")[0] for path in shelf.expire([made])] == ["step-5000"]


def test_what_was_saved_while_no_adapter_ran_is_the_runs_own(torch_script: Script) -> None:
    shelf = torch_script.shelf(run="r")
    shelf.begin()
    torch_script._now_ns = next(torch_script.folder.glob(".evertrain-run-*")).stat().st_mtime_ns
    torch_script.save(10)
    again = torch_script.shelf(run="r")
    again.begin()
    assert _newest(again) == "step-10"


# -- what may go


def test_a_failed_save_costs_nothing_though_only_one_is_kept(script: Script) -> None:
    shelf = script.shelf(keep_last=1)
    watch = Watch(shelf, settle_s=0.0, clock=lambda: 0.0)
    script.save(100)
    assert [one.seal.step for one in watch.look()] == [100]
    half = script.save(200)
    file = _data_file(half)
    os.truncate(file, file.stat().st_size // 2)  # the disk was full
    script.touch(half)
    assert watch.look() == []
    assert _newest(shelf) == "step-100"
    script.save(300)
    assert [one.seal.step for one in watch.look()] == [300]
    assert sorted(path.name.partition(".")[0] for path in shelf.checkpoints()) == ["step-200", "step-300"]


def test_a_save_in_progress_is_left_alone_until_it_settles(torch_script: Script) -> None:
    now = [0.0]
    watch = Watch(torch_script.shelf(keep_last=1), settle_s=5.0, clock=lambda: now[0])
    torch_script.save(100)
    assert watch.look() == []
    now[0] = 5.0
    assert len(watch.look()) == 1
    path = torch_script.save(200)
    whole = path.read_bytes()
    for share in (3, 2):  # an asynchronous save flushes for a long time
        path.write_bytes(whole[: len(whole) // share])
        now[0] += 4.0
        assert watch.look() == []
        assert _newest(torch_script.shelf()) == "step-100"
    path.write_bytes(whole)
    now[0] += 4.0
    assert watch.look() == []
    now[0] += 5.0
    assert [one.seal.step for one in watch.look()] == [200]


def test_multiples_stay_and_the_newest_is_read_before_anything_goes(torch_script: Script) -> None:
    shelf = torch_script.shelf(keep_last=2, keep_every=100)
    made = [shelf.seal(torch_script.save(step)) for step in (100, 150, 200, 250, 300, 350)]
    assert [one.seal.step for one in expired(made, spec=shelf.spec)] == [150, 250]
    _flip(made[-1].path, 700)
    with pytest.raises(NotWhole):
        shelf.expire(made[:1])
    assert len(shelf.sealed()) == 6
    assert len(shelf.expire(made)) == 2, "one that was sealed just now was read just now"


def test_a_removal_that_was_cut_short_is_finished(script: Script) -> None:
    path = script.save(100)
    left = path.rename(path.with_name(seal.REMOVING + path.name))
    shelf = script.shelf()
    assert shelf.checkpoints() == []
    shelf.sweep()
    assert not left.exists()


# -- overwritten in place


def test_overwritten_in_place_and_cut_short_the_old_seal_does_not_count(script: Script) -> None:
    shelf = script.shelf()
    watch = Watch(shelf, settle_s=0.0, clock=lambda: 0.0)
    shelf.seal(script.save(90))
    path = script.save(100)
    assert len(watch.look()) == 1
    newer = script.folder / "aside"
    newer.mkdir()
    other = Script(newer, script.kind)
    fresh = _data_file(other.save(100, seed=7)).read_bytes()
    _data_file(path).write_bytes(fresh)  # as large as before, whole in itself, and not what belongs to the rest
    shutil.rmtree(newer)
    if script.kind is SaveKind.TORCH_SAVE:
        os.truncate(path, len(fresh) // 2)
    assert _newest(shelf) == "step-90"
    assert watch.look() == []
    assert seal.read(path) is None, "its seal is void"
    assert _newest(script.shelf()) == "step-90"


def test_overwritten_in_place_and_whole_it_counts_again(script: Script) -> None:
    shelf = script.shelf()
    watch = Watch(shelf, settle_s=0.0, clock=lambda: 0.0)
    script.save(100)
    assert len(watch.look()) == 1
    script.save(100, seed=7)
    assert _newest(shelf) == "", "until it is sealed anew"
    assert len(watch.look()) == 1
    assert _newest(shelf) == "step-100"


# -- hostile and unreadable


class _Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_nothing_that_a_checkpoint_holds_is_run(torch_script: Script, dcp_script: Script, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    state = pickle.dumps({"step": 1, "trap": _Runs(ran)})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", state)
    path = tmp_path / "step-1.pt"
    path.write_bytes(buffer.getvalue())
    assert inspect(path, torch_script.spec(step_key="step")).step == 1
    metadata = dcp_script.save(2) / ".metadata"
    metadata.write_bytes(state)
    with pytest.raises(NotWhole, match="cannot be read"):
        inspect(metadata.parent, dcp_script.spec())
    assert not ran.exists()


@pytest.fixture
def unreadable(torch_script: Script) -> Path:
    path = torch_script.folder / "step-200.pt"
    path.symlink_to("/proc/self/mem")  # the kernel answers EIO to who reads its first page
    return path


def test_what_cannot_be_read_is_no_reason_to_go_further_back(torch_script: Script, unreadable: Path) -> None:
    torch_script.save(100)
    os.utime(torch_script.folder / "step-100.pt", ns=(0, 0))
    with pytest.raises(OSError, match=r"Input/output error|Invalid argument"):
        torch_script.shelf().newest_good()


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": SaveKind.FOLDER, "pattern": "out/step-*"},
        {"kind": SaveKind.TORCH_SAVE, "pattern": "out/*/step.pt"},
        {"kind": SaveKind.TORCH_SAVE, "pattern": "out/"},
        {"kind": SaveKind.DCP, "pattern": "out/step-*", "marker": "x"},
        {"kind": SaveKind.DCP, "pattern": "out/step-*", "keep_last": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadSpec):
        AdapterSpec(**settings)


def test_a_step_is_the_patterns_or_the_last_number_of_the_name() -> None:
    exact = AdapterSpec(kind=SaveKind.TORCH_SAVE, pattern="out/gpt2-{step}-ema.pt")
    assert (exact.step_of("gpt2-700-ema.pt"), exact.step_of("gpt2-700.pt")) == (700, None)
    assert AdapterSpec(kind=SaveKind.DCP, pattern="out/gpt2-*").step_of("gpt2-v3-900") == 900
