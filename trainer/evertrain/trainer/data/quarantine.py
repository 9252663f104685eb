"""Bad samples that are left out from a step on, alike on every rank and after every restart.

An entry says which sample and from which step. What was consumed before that
step stays as it was. From it on, the sample's place in a map-style order
(sampler.py) is taken by a sample that the epoch would have left out at its end;
when those are used up, by one of the epoch's own, a second time. All other
places keep what they had. A stream of shards (shards.py) passes over it.

Not for finding bad samples: that is the script's part (bad_samples.py brings
what the ranks found together).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from evertrain.trainer.data.permutation import KeyedPermutation

QUARANTINED_MAX: Final = 10_000
"""More than that is a dataset to be mended, not a few samples to be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """One sample, and since when it is left out."""

    sample: int
    from_step: int
    """The first step, counted from 0, that no longer uses it."""


class HandingOut:
    """How far a process has handed out steps, and so from which step a new entry can begin.

    An entry that a script declares before its first step, and that the
    checkpoint does not know, begins no earlier than the process does: what the
    job consumed before was consumed without it.
    """

    def __init__(self) -> None:
        self.next_step = 0
        """Steps before this one were handed out, here or to a data loader that fetches ahead."""
        self._begun = False
        self._declared: set[int] = set()
        """Samples whose entries are the script's own, and not older than the process."""

    def declare(
        self, entries: tuple[Quarantined, ...], samples: Iterable[int], *, from_step: int
    ) -> tuple[Quarantined, ...]:
        """``entries`` and those for ``samples`` that are new. Raises ValueError if ``from_step`` was handed out."""
        if from_step < self.next_step:
            raise ValueError(
                f"step {from_step} was handed out already: samples can be quarantined from {self.next_step} on"
            )
        fresh = set(samples).difference(entry.sample for entry in entries)
        if not self._begun:
            self._declared |= fresh
        return merged(entries, (Quarantined(sample=sample, from_step=from_step) for sample in fresh))

    def dated(self, entries: tuple[Quarantined, ...]) -> list[list[int]]:
        """What a checkpoint keeps of ``entries``: those of which it is settled since when, as sample and step."""
        unsettled = frozenset() if self._begun else self._declared
        return [[entry.sample, entry.from_step] for entry in entries if entry.sample not in unsettled]

    def restored(self, saved: Iterable[Quarantined], own: tuple[Quarantined, ...]) -> tuple[Quarantined, ...]:
        """The checkpoint's entries, and the script's own."""
        saved = tuple(saved)
        self._declared.difference_update(entry.sample for entry in saved)
        return merged(saved, own)

    def begin(self, entries: tuple[Quarantined, ...], step: int) -> tuple[Quarantined, ...]:
        """The process begins with ``step``, unless it has begun before; ``entries`` as they are from now on."""
        if self._begun:
            return entries
        self._begun, self.next_step = True, step
        return tuple(
            replace(entry, from_step=max(entry.from_step, step)) if entry.sample in self._declared else entry
            for entry in entries
        )

    def hand_out(self, step: int) -> None:
        """Step ``step`` is fixed from now on."""
        self.next_step = max(self.next_step, step + 1)


def merged(*lists: Iterable[Quarantined]) -> tuple[Quarantined, ...]:
    """All entries, by sample. Of two for one sample the earlier list's stays: it may have had its effect."""
    by_sample: dict[int, Quarantined] = {}
    for entries in lists:
        for entry in entries:
            by_sample.setdefault(entry.sample, entry)
    return tuple(by_sample[sample] for sample in sorted(by_sample))


def require_valid(entries: tuple[Quarantined, ...], *, length: int) -> None:
    """Raise ValueError unless the list is sorted, within the dataset, and leaves something to train on."""
    samples = [entry.sample for entry in entries]
    if samples != sorted(set(samples)):
        raise ValueError("a quarantine names each sample once, in order: use merged()")
    if samples and not 0 <= samples[0] <= samples[-1] < length:
        raise ValueError(f"a quarantined sample is outside of a dataset of {length}: {samples[0]} or {samples[-1]}")
    if len(samples) > QUARANTINED_MAX or len(samples) >= length:
        raise ValueError(
            f"{len(samples)} of {length} samples are quarantined, at most {QUARANTINED_MAX} and not all can be: "
            "mend the dataset and start a new job"
        )


def substitutes(
    permutation: KeyedPermutation,
    again: KeyedPermutation,
    since: Mapping[int, int],
    *,
    batch: int,
    first_step: int,
) -> dict[int, int]:
    """For the places of one epoch that a quarantined sample loses: who takes them.

    Built from the epoch's beginning to its end, so that an entry for later
    steps changes nothing of earlier places. ``since`` maps samples to their
    first step, ``again`` orders the places that are used twice if need be.
    """
    used = permutation.length // batch * batch
    lost = []
    for sample, from_step in since.items():
        place = permutation.index_of(sample)
        if place < used and first_step + place // batch >= from_step:
            lost.append(place)
    spare = _spare(permutation, again, used=used)
    taken = {}
    for place in sorted(lost):
        step = first_step + place // batch
        taken[place] = next(sample for sample in spare if since.get(sample, step + 1) > step)
    return taken


def _spare(permutation: KeyedPermutation, again: KeyedPermutation, *, used: int) -> Iterator[int]:
    for place in range(used, permutation.length):
        yield permutation(place)
    while True:  # ends when whoever asks has enough: not all samples are quarantined
        for index in range(used):
            yield permutation(again(index))
