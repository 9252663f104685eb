"""Datasets that are read in sequence, shard by shard: an order that is a function of seed and step alone.

A fixed number of logical streams runs through the shards; each gives the same
number of samples to every step, and a rank owns some of them, whatever the
world size is. Epoch e deals the shards, in an order of its own, to the streams
in turn; a stream that has read its shards goes on with those of epoch e + 1.
So each sample comes once in each epoch, though streams with fewer samples are
ahead of the others by some steps.

A shard's samples are known by number, which takes one pass to count them
(:func:`count_shards`), once for a dataset. With that, the position of every
stream at every step is arithmetic, and none has to be saved or brought together
from the ranks. Quarantined samples are passed over: the stream's next one comes
in their place.

Not for map-style datasets (sampler.py).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

from evertrain.contract.wire import from_dict, to_dict
from evertrain.trainer.data.files import write_whole
from evertrain.trainer.data.permutation import KeyedPermutation
from evertrain.trainer.data.quarantine import HandingOut, Quarantined, merged, require_valid
from evertrain.trainer.data.sampler import OrderChanged
from evertrain.trainer.place import rank_and_world_size

Reader = Callable[[int, int], Iterator[Any]]
"""``read(shard, start)`` gives the samples of a shard in order, from number ``start`` on."""


class ShardPlace(NamedTuple):
    """Where a stream is: the next sample it would read."""

    epoch: int
    shard: int
    sample: int
    """Within the shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOrder:
    """The plan: for every step the samples of the whole gang's batch. Pure, and equal in every process.

    A sample's id is its number in the list of all shards one after another.
    """

    counts: tuple[int, ...]
    """Samples of each shard."""
    batch: int
    """Samples in a step, over all ranks."""
    streams: int
    seed: int = 0
    quarantine: tuple[Quarantined, ...] = ()
    """By sample."""

    def __post_init__(self) -> None:
        if not 1 <= self.streams <= len(self.counts):
            raise ValueError(f"{len(self.counts)} shards cannot feed {self.streams} streams: at least one shard each")
        if self.batch < 1 or self.batch % self.streams:
            raise ValueError(
                f"a global batch of {self.batch} cannot be taken in equal parts from {self.streams} streams"
            )
        if min(self.counts) < 1:
            raise ValueError(f"shard {self.counts.index(min(self.counts))} is empty: leave it out of the list")
        require_valid(self.quarantine, length=sum(self.counts))

    @property
    def per_stream(self) -> int:
        """Samples that a stream gives to each step."""
        return self.batch // self.streams

    def ids(self, step: int) -> list[int]:
        """The ids of step ``step``, stream by stream."""
        return [sample for stream in range(self.streams) for sample in self.stream_ids(stream, step)]

    def stream_ids(self, stream: int, step: int) -> list[int]:
        """What one stream gives to a step."""
        return [sample for _, sample in islice(self.stream_from(stream, step), self.per_stream)]

    def stream_from(self, stream: int, step: int) -> Iterator[tuple[ShardPlace, int]]:
        """A stream's samples from a step on, without end, quarantined ones passed over."""
        since = {entry.sample: entry.from_step for entry in self.quarantine}
        given = step * self.per_stream
        for place, sample in self._raw(stream, self._raw_position(stream, given)):
            if since.get(sample, given // self.per_stream + 1) > given // self.per_stream:
                yield place, sample
                given += 1

    def without(self, samples: Iterable[int], *, from_step: int) -> ShardOrder:
        """The same order, with ``samples`` passed over from ``from_step`` on; those left out already stay so."""
        entries = [Quarantined(sample=sample, from_step=from_step) for sample in samples]
        return replace(self, quarantine=merged(self.quarantine, entries))

    def _raw_position(self, stream: int, given: int) -> int:
        """How many samples a stream has read when it has given ``given``: more, by those passed over."""
        if not self.quarantine:
            return given
        since = {entry.sample: entry.from_step for entry in self.quarantine}
        before, passed, epoch = 0, 0, 0
        while before - passed < given:
            for position, sample in _in_the_way(self, stream, epoch):
                place = before + position - passed  # that it would take, were it not left out
                if place >= given:
                    break
                passed += place // self.per_stream >= since[sample]
            before += _epoch(self.counts, self.streams, self.seed, stream, epoch).size
            epoch += 1
        return given + passed

    def _raw(self, stream: int, position: int) -> Iterator[tuple[ShardPlace, int]]:
        epoch = 0
        while position >= (size := _epoch(self.counts, self.streams, self.seed, stream, epoch).size):
            position -= size
            epoch += 1
        while True:
            dealt = _epoch(self.counts, self.streams, self.seed, stream, epoch)
            number = bisect_right(dealt.starts, position) - 1
            for at in range(number, len(dealt.shards)):
                shard = dealt.shards[at]
                base = _bases(self.counts)[shard]
                for sample in range(position - dealt.starts[at], self.counts[shard]):
                    yield ShardPlace(epoch, shard, sample), base + sample
                position = dealt.starts[at + 1]
            epoch, position = epoch + 1, 0


class _Dealt(NamedTuple):
    """A stream's part of one epoch."""

    shards: tuple[int, ...]
    starts: tuple[int, ...]
    """Samples before each shard; one more at the end."""
    size: int


@lru_cache(maxsize=1024)
def _in_the_way(order: ShardOrder, stream: int, epoch: int) -> tuple[tuple[int, int], ...]:
    """The quarantined samples that a stream meets in an epoch, each with its position in the stream's part of it."""
    bases = _bases(order.counts)
    dealt = _epoch(order.counts, order.streams, order.seed, stream, epoch)
    starts = dict(zip(dealt.shards, dealt.starts, strict=False))
    met = []
    for entry in order.quarantine:
        shard = bisect_right(bases, entry.sample) - 1
        if shard in starts:
            met.append((starts[shard] + entry.sample - bases[shard], entry.sample))
    return tuple(sorted(met))


@lru_cache(maxsize=1024)
def _epoch(counts: tuple[int, ...], streams: int, seed: int, stream: int, epoch: int) -> _Dealt:
    permutation = KeyedPermutation(len(counts), f"{seed}:{epoch}:shards")
    shards = tuple(permutation(place) for place in range(stream, len(counts), streams))
    starts = tuple(accumulate((counts[shard] for shard in shards), initial=0))
    return _Dealt(shards, starts, starts[-1])


@lru_cache(maxsize=8)
def _bases(counts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(accumulate(counts, initial=0))[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """What a whole job is to train on, small enough to write down: an order of shards and how many steps of it."""

    order: ShardOrder
    steps: int

    def save(self, path: Path) -> None:
        """Write it to ``path``, in one piece."""
        write_whole(path, json.dumps(to_dict(self)).encode())


def read_shard_plan(path: Path) -> ShardPlan:
    """Read a saved plan back. Raises OSError, or ValueError if it is none."""
    return from_dict(ShardPlan, json.loads(path.read_bytes()))


def count_shards(read: Reader, shards: int) -> tuple[int, ...]:
    """The samples of each of ``shards`` shards, by reading all of them. Once for a dataset; keep the result."""
    return tuple(sum(1 for _ in read(shard, 0)) for shard in range(shards))


class Drawn(NamedTuple):
    """One sample as its stream gave it."""

    sample: int
    """Its id."""
    value: Any


class ElasticShards:
    """This rank's streams of a :class:`ShardOrder`.

    Ranks own equally many streams, or some one more; :attr:`loss_weight` is
    for that.
    """

    def __init__(self, order: ShardOrder, *, rank: int | None = None, world_size: int | None = None) -> None:
        self.order = order
        default_rank, default_world_size = rank_and_world_size()
        self.rank = default_rank if rank is None else rank
        self.world_size = default_world_size if world_size is None else world_size
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not below the world size {self.world_size}")
        if self.world_size > order.streams:
            raise ValueError(f"{order.streams} streams leave some of {self.world_size} ranks without a sample")
        self._handing = HandingOut()

    @property
    def handed_out(self) -> int:
        """Steps before this one were handed out by :meth:`steps` in this process."""
        return self._handing.next_step

    @property
    def streams(self) -> range:
        """The streams this rank owns: consecutive, and no other rank's."""
        first = self.rank * self.order.streams // self.world_size
        return range(first, (self.rank + 1) * self.order.streams // self.world_size)

    @property
    def loss_weight(self) -> float:
        """Factor for a loss that is a mean over this rank's samples: local count x world size / global batch."""
        return len(self.streams) * self.world_size / self.order.streams

    def begin(self, step: int) -> None:
        """This process goes on from ``step``; the first :meth:`steps` says so, too."""
        if (quarantine := self._handing.begin(self.order.quarantine, step)) != self.order.quarantine:
            self.order = replace(self.order, quarantine=quarantine)

    def steps(
        self, read: Reader, start: int, stop: int, *, every: int = 1, first: int = 0
    ) -> Iterator[tuple[int, list[Drawn]]]:
        """``(step, samples)`` from ``start`` up to ``stop``; of them those in ``first``'s place of each ``every``.

        Samples of the steps between are read and not given. Raises ValueError
        if a shard has fewer samples than were counted.
        """
        self.begin(start)
        streams = [_Reading(self.order, stream, read, start) for stream in self.streams]
        for step in range(start, stop):
            wanted = (step - start) % every == first
            taken = [stream.take(self.order.per_stream, wanted=wanted) for stream in streams]
            self._handing.hand_out(step)
            if wanted:
                yield step, [drawn for part in taken for drawn in part]

    def quarantine(self, samples: Iterable[int], *, from_step: int) -> None:
        """Pass over ``samples`` from ``from_step`` on. All ranks call it alike; begin :meth:`steps` anew then."""
        quarantine = self._handing.declare(self.order.quarantine, samples, from_step=from_step)
        self.order = replace(self.order, quarantine=quarantine)

    def consumed(self, step: int) -> int:
        """Samples that the whole job has consumed when ``step`` steps are complete: each step has as many."""
        return step * self.order.batch

    def state_dict(self) -> dict[str, Any]:
        """What identifies the order, and who is left out of it. The position is the checkpoint's step."""
        order = self.order
        return {
            "counts": list(order.counts),
            "batch": order.batch,
            "streams": order.streams,
            "seed": order.seed,
            "quarantine": self._handing.dated(order.quarantine),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check that the checkpoint's order is this one, and take over its quarantine. Raises :class:`OrderChanged`."""
        order = self.order
        if tuple(state.get("counts", ())) != order.counts:
            raise OrderChanged("the shards have other numbers of samples than those of the checkpoint's order")
        for name in ("batch", "streams", "seed"):
            if state.get(name) != (value := getattr(order, name)):
                raise OrderChanged(f"{name} is {value}, the checkpoint's order has {state.get(name)}")
        saved = [Quarantined(sample=sample, from_step=step) for sample, step in state["quarantine"]]
        self.order = replace(order, quarantine=self._handing.restored(saved, order.quarantine))


class _Reading:
    """One stream being read: the open shard, and what comes next."""

    def __init__(self, order: ShardOrder, stream: int, read: Reader, start: int) -> None:
        self._coming = order.stream_from(stream, start)
        self._read = read
        self._at: ShardPlace | None = None
        self._open: Iterator[Any] = iter(())

    def take(self, count: int, *, wanted: bool) -> list[Drawn]:
        """The next samples; without values if they are not wanted."""
        taken = []
        for place, sample in islice(self._coming, count):
            value = self._value(place, sample)
            if wanted:
                taken.append(Drawn(sample, value))
        return taken

    def _value(self, place: ShardPlace, sample: int) -> Any:
        at = self._at
        if at is None or at[:2] != place[:2]:
            at = place
            self._open = iter(self._read(place.shard, place.sample))
        passed_over = place.sample - at.sample
        self._at = place._replace(sample=place.sample + 1)
        for value in islice(self._open, passed_over, None):
            return value
        raise ValueError(
            f"shard {place.shard} ends before its sample {place.sample} (id {sample}), which was there when the "
            "shards were counted: the dataset has changed"
        )
