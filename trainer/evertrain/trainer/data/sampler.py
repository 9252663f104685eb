"""Which samples a rank trains on at which step: a function of seed and step alone, never of the world size.

Not for reading samples (windows.py), nor for proving what was read (consumption.py).

Errors::

    OrderChanged (ValueError)    a checkpoint was made with another order than the script declares
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from evertrain.contract.wire import from_dict, to_dict
from evertrain.trainer.data.files import write_whole
from evertrain.trainer.data.permutation import KeyedPermutation
from evertrain.trainer.data.quarantine import HandingOut, Quarantined, merged, require_valid, substitutes
from evertrain.trainer.data.seeding import SampleRef
from evertrain.trainer.place import rank_and_world_size

Slice = tuple[int, int]
"""Places of a global batch, from the first up to, not including, the second."""


class OrderChanged(ValueError):
    """The checkpoint's samples came in another order: going on would repeat some and skip others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalOrder:
    """The plan: for every step the ids of the whole gang's batch. Pure, and equal in every process.

    Each epoch is a permutation of its own. The last ``length % batch`` ids of
    an epoch's permutation are left out of that epoch; which ones differs from
    epoch to epoch. They take the places of quarantined samples (quarantine.py).
    """

    length: int
    """Samples in the dataset."""
    batch: int
    """Samples in a step, over all ranks."""
    seed: int = 0
    quarantine: tuple[Quarantined, ...] = ()
    """By sample."""

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.length:
            raise ValueError(f"a global batch of {self.batch} does not fit a dataset of {self.length} samples")
        require_valid(self.quarantine, length=self.length)

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one pass over the data."""
        return self.length // self.batch

    def ids(self, step: int, first: int = 0, last: int | None = None) -> list[int]:
        """The ids of step ``step`` (counted from 0), or of places ``first`` to ``last`` of it."""
        epoch, place = divmod(step, self.steps_per_epoch)
        permutation = _permutation(self.length, self.seed, epoch)
        taken = _substitutes(self, epoch) if self.quarantine else {}
        offset = place * self.batch
        places = range(offset + first, offset + (self.batch if last is None else last))
        return [taken[at] if at in taken else permutation(at) for at in places]

    def slice(self, microbatch: int, *, of: int) -> Slice:
        """The places of one of ``of`` equal microbatches. Raises ValueError if they can't be equal."""
        if self.batch % of:
            raise ValueError(f"a global batch of {self.batch} cannot be cut into {of} equal microbatches")
        width = self.batch // of
        return microbatch * width, (microbatch + 1) * width

    def microbatch(self, step: int, microbatch: int, *, of: int) -> list[int]:
        """The ids of one of ``of`` equal microbatches of a step. Raises ValueError if they can't be equal."""
        return self.ids(step, *self.slice(microbatch, of=of))

    def without(self, samples: Iterable[int], *, from_step: int) -> GlobalOrder:
        """The same order, with ``samples`` left out from ``from_step`` on; those left out already stay so."""
        entries = [Quarantined(sample=sample, from_step=from_step) for sample in samples]
        return replace(self, quarantine=merged(self.quarantine, entries))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a whole job is to train on, small enough to write down: an order and how many steps of it."""

    order: GlobalOrder
    steps: int

    def save(self, path: Path) -> None:
        """Write it to ``path``, in one piece."""
        write_whole(path, json.dumps(to_dict(self)).encode())


def read_plan(path: Path) -> Plan:
    """Read a saved plan back. Raises OSError, or ValueError if it is none."""
    return from_dict(Plan, json.loads(path.read_bytes()))


class ElasticSampler:
    """This rank's share of a :class:`GlobalOrder`: a contiguous slice of each global batch.

    Slices of different ranks differ by at most one sample. A loss that is a
    mean over the slice is to be multiplied by :attr:`loss_weight`; then the
    mean over ranks that DistributedDataParallel makes equals the mean over
    the global batch.
    """

    def __init__(
        self, length: int, global_batch: int, *, seed: int = 0, rank: int | None = None, world_size: int | None = None
    ) -> None:
        self.order = GlobalOrder(length=length, batch=global_batch, seed=seed)
        default_rank, default_world_size = rank_and_world_size()
        self.rank = default_rank if rank is None else rank
        self.world_size = default_world_size if world_size is None else world_size
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not below the world size {self.world_size}")
        if self.world_size > global_batch:
            raise ValueError(
                f"a global batch of {global_batch} leaves some of {self.world_size} ranks without a sample"
            )
        self._first = self.rank * global_batch // self.world_size
        self._last = (self.rank + 1) * global_batch // self.world_size
        self._handing = HandingOut()

    @property
    def handed_out(self) -> int:
        """Steps before this one were handed out, here or to a data loader that fetches ahead."""
        return self._handing.next_step

    @property
    def loss_weight(self) -> float:
        """Factor for a loss that is a mean over this rank's samples: local count x world size / global batch."""
        return (self._last - self._first) * self.world_size / self.order.batch

    def ids(self, step: int) -> list[int]:
        """This rank's ids of step ``step``, counted from 0."""
        return self.hand_out(step, (self._first, self._last))

    def microbatch(self, step: int, microbatch: int, *, of: int) -> list[int]:
        """The ids of one of ``of`` equal microbatches of a step, whoever's it is. ValueError if they can't be equal."""
        return self.hand_out(step, self.order.slice(microbatch, of=of))

    def steps(self, start: int, stop: int | None = None) -> Iterator[tuple[int, list[int]]]:
        """``(step, ids)`` from ``start`` (what ``restore()`` returned) up to ``stop``, without end by default."""
        step = start
        while stop is None or step < stop:
            yield step, self.ids(step)
            step += 1

    def begin(self, step: int) -> None:
        """This process goes on from ``step``; the first step handed out says so, too."""
        if (quarantine := self._handing.begin(self.order.quarantine, step)) != self.order.quarantine:
            self.order = replace(self.order, quarantine=quarantine)

    def hand_out(self, step: int, places: Slice) -> list[int]:
        """The ids of ``places`` of step ``step``, from now on fixed: no quarantine can concern that step any more."""
        self.begin(step)
        self._handing.hand_out(step)
        return self.order.ids(step, *places)

    def batches(
        self, start: int, stop: int, *, slices: Sequence[Slice] | None = None, refs: bool = False
    ) -> StepBatches:
        """The same as a batch sampler: ``DataLoader(dataset, batch_sampler=sampler.batches(start, total))``.

        With ``slices`` of the global batch each step comes in that many
        batches. With ``refs`` the items are :class:`SampleRef`, for a dataset
        whose augmentation is seeded by them.
        """
        return StepBatches(self, range(start, stop), slices or [(self._first, self._last)], refs=refs)

    def quarantine(self, samples: Iterable[int], *, from_step: int) -> None:
        """Leave ``samples`` out from ``from_step`` on. All ranks call it alike (bad_samples.py sees to that).

        ``from_step`` must not lie before what was handed out already, which
        is :attr:`handed_out`: data loaders fetch ahead. Before the first step
        of a process it may be any; what the checkpoint does not know then
        begins with the process.
        """
        quarantine = self._handing.declare(self.order.quarantine, samples, from_step=from_step)
        self.order = replace(self.order, quarantine=quarantine)

    def consumed(self, step: int) -> int:
        """Samples that the whole job has consumed when ``step`` steps are complete: each step has as many."""
        return step * self.order.batch

    def state_dict(self) -> dict[str, Any]:
        """What identifies the order, and who is left out of it. The position is the checkpoint's step."""
        order = self.order
        return {
            "length": order.length,
            "batch": order.batch,
            "seed": order.seed,
            "quarantine": self._handing.dated(order.quarantine),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check that the checkpoint's order is this one, and take over its quarantine. Raises :class:`OrderChanged`.

        Of a sample that both know, the checkpoint says since when it is left out.
        """
        for name in ("length", "batch", "seed"):
            if state.get(name) != (value := getattr(self.order, name)):
                raise OrderChanged(f"{name} is {value}, the checkpoint's order has {state.get(name)}")
        saved = [Quarantined(sample=sample, from_step=step) for sample, step in state.get("quarantine", [])]
        self.order = replace(self.order, quarantine=self._handing.restored(saved, self.order.quarantine))


class StepBatches:
    """Local ids of consecutive steps, for ``DataLoader(batch_sampler=...)`` and its stateful kin."""

    def __init__(self, sampler: ElasticSampler, steps: range, slices: Sequence[Slice], *, refs: bool) -> None:
        self._sampler = sampler
        self._steps = steps
        self._slices = slices
        self._refs = refs

    def __iter__(self) -> BatchIterator:
        return BatchIterator(self._sampler, self._steps, self._slices, refs=self._refs)

    def __len__(self) -> int:
        return len(self._steps) * len(self._slices)


class BatchIterator:
    """One pass over :class:`StepBatches`. Its state is an absolute position, whatever step the pass began at."""

    def __init__(self, sampler: ElasticSampler, steps: range, slices: Sequence[Slice], *, refs: bool) -> None:
        self._sampler = sampler
        self._stop = steps.stop
        self._slices = slices
        self._refs = refs
        self._step, self._slice = steps.start, 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Any]:
        if self._step >= self._stop:
            raise StopIteration
        step = self._step
        ids = self._sampler.hand_out(step, self._slices[self._slice])
        self._slice += 1
        if self._slice == len(self._slices):
            self._step, self._slice = step + 1, 0
        return [SampleRef(step, sample) for sample in ids] if self._refs else ids

    def state_dict(self) -> dict[str, int]:
        """The position."""
        return {"step": self._step, "slice": self._slice}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go there."""
        self._step, self._slice = state["step"], state["slice"]


@lru_cache(maxsize=4)
def _permutation(length: int, seed: int, epoch: int) -> KeyedPermutation:
    return KeyedPermutation(length, f"{seed}:{epoch}")


@lru_cache(maxsize=4)
def _substitutes(order: GlobalOrder, epoch: int) -> dict[int, int]:
    used = order.steps_per_epoch * order.batch
    return substitutes(
        _permutation(order.length, order.seed, epoch),
        KeyedPermutation(used, f"{order.seed}:{epoch}:again"),
        {entry.sample: entry.from_step for entry in order.quarantine},
        batch=order.batch,
        first_step=epoch * order.steps_per_epoch,
    )
