"""Brings the bad samples that any rank found to all of them, and into the quarantine at one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evertrain.trainer.peers import Peers


class Quarantines(Protocol):
    """A sampler that leaves samples out."""

    @property
    def handed_out(self) -> int: ...

    def quarantine(self, samples: Iterable[int], *, from_step: int) -> None: ...


class BadSamples:
    """What this rank found since the ranks last agreed."""

    def __init__(self, sampler: Quarantines, peers: Peers) -> None:
        self._sampler = sampler
        self._peers = peers
        self._found: set[int] = set()

    def found(self, sample: int) -> None:
        """Note a bad sample. What this step makes of it is the script's decision."""
        self._found.add(sample)

    def agree(self) -> list[int]:
        """Quarantine what any rank found, from the first step on that no rank was handed out. A collective.

        To be called at step boundaries, by all ranks at the same ones; returns
        the samples. The agreement is part of the sampler's state.
        """
        told = self._peers.gather({"found": sorted(self._found), "handed_out": self._sampler.handed_out})
        self._found.clear()
        samples = sorted({sample for message in told for sample in message["found"]})
        if samples:
            self._sampler.quarantine(samples, from_step=max(message["handed_out"] for message in told))
        return samples
