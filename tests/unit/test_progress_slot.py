"""A worker's progress slot: what is noted is read, whole or not at all, and by its generation alone."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evertrain.contract.beacon import Progress
from evertrain.contract.progress_slot import SLOT_BYTES, ProgressSlot, open_slot, read_slot

NUMBERS = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture
def memory() -> Iterator[mmap.mmap]:
    """Two empty slots."""
    with mmap.mmap(-1, 2 * SLOT_BYTES) as memory:
        yield memory


def steps(memory: mmap.mmap, *, generation: int = 3) -> list[int | None]:
    """The step in each slot."""
    read = [read_slot(memory, local_rank, generation=generation) for local_rank in (0, 1)]
    return [None if noted is None else noted[1].step for noted in read]


def test_an_untouched_slot_holds_nothing(memory: mmap.mmap) -> None:
    assert steps(memory) == [None, None]
    assert steps(memory, generation=0) == [None, None]


@given(step=NUMBERS, loss=st.none() | st.floats(allow_nan=False), tokens=NUMBERS)
def test_what_is_noted_is_read(step: int, loss: float | None, tokens: int) -> None:
    with mmap.mmap(-1, SLOT_BYTES) as memory:
        ProgressSlot(memory, 0, generation=3).write(step, loss=loss, tokens=tokens)
        assert read_slot(memory, 0, generation=3) == (1, Progress(step=step, loss=loss, tokens=tokens))


def test_a_loss_that_is_no_number_is_a_loss(memory: mmap.mmap) -> None:
    ProgressSlot(memory, 0, generation=3).write(1, loss=math.nan, tokens=0)
    noted = read_slot(memory, 0, generation=3)
    assert noted is not None
    assert noted[1].loss is not None
    assert math.isnan(noted[1].loss)


def test_the_latest_of_many_notes_counts_and_each_rank_has_its_own(memory: mmap.mmap) -> None:
    zero, one = (ProgressSlot(memory, local_rank, generation=3) for local_rank in (0, 1))
    for step in range(1, 100):
        zero.write(step, loss=0.5, tokens=10 * step)
        assert steps(memory) == [step, None if step == 1 else step - 1]
        one.write(step, loss=0.5, tokens=10 * step)


def test_a_note_that_is_cut_off_anywhere_leaves_the_one_before(memory: mmap.mmap) -> None:
    slot = ProgressSlot(memory, 0, generation=3)
    for step in (101, 102):
        slot.write(step, loss=step / 3, tokens=step**5)
    before = memory[:]
    slot.write(103, loss=0.1, tokens=7)
    after = memory[:]
    changed = [at for at in range(len(after)) if after[at] != before[at]]
    assert changed[-1] - changed[0] > 8, "a record was rewritten, not a field of it"
    for cut in range(changed[0], changed[-1] + 1):
        memory[:] = after[:cut] + before[cut:]
        assert steps(memory) == [102, None], f"after {cut} bytes"
    memory[:] = after
    assert steps(memory) == [103, None]


def test_a_note_of_another_generation_is_not_read(memory: mmap.mmap) -> None:
    ProgressSlot(memory, 0, generation=2).write(50, loss=None, tokens=0)
    assert steps(memory) == [None, None]
    ProgressSlot(memory, 0, generation=3).write(40, loss=None, tokens=0)
    assert steps(memory) == [40, None]


def test_a_later_session_of_the_same_process_is_the_one_that_counts(memory: mmap.mmap) -> None:
    first = ProgressSlot(memory, 0, generation=3)
    for step in range(5):
        first.write(step, loss=None, tokens=0)
    ProgressSlot(memory, 0, generation=3).write(2, loss=None, tokens=0)
    assert steps(memory) == [2, None]


def test_a_number_that_no_launcher_takes_is_dropped(memory: mmap.mmap) -> None:
    slot = ProgressSlot(memory, 0, generation=3)
    slot.write(1, loss=None, tokens=0)
    slot.write(2, loss=None, tokens=2**63)
    assert steps(memory) == [1, None]


def test_a_file_is_shared_with_who_maps_it(tmp_path: Path) -> None:
    path = tmp_path / "slots"
    path.write_bytes(bytes(2 * SLOT_BYTES))
    slot = open_slot(str(path), 1, generation=3)
    assert slot is not None
    slot.write(9, loss=None, tokens=0)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        assert steps(memory) == [None, 9]
        slot.close()
        assert steps(memory) == [None, 9]


def test_there_is_no_slot_where_it_is_out_of_reach(tmp_path: Path) -> None:
    empty, short = tmp_path / "empty", tmp_path / "short"
    empty.touch()
    short.write_bytes(bytes(SLOT_BYTES))
    assert open_slot("", 0, generation=1) is None
    for path in (tmp_path / "none", tmp_path, empty):
        assert open_slot(str(path), 0, generation=1) is None
    assert open_slot(str(short), 1, generation=1) is None
