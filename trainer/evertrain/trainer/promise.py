"""Holds a script to the reproducible mode that its job's specification promises. Not for the mode (reproducible/)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evertrain.trainer.parts import Parts
from evertrain.trainer.peers import Peers
from evertrain.trainer.reproducible import Reproducible, Unsupported
from evertrain.trainer.reproducible.surroundings import departures

MISSING = (
    "the job's specification says reproducible, but the script declares no reproducible.Reproducible: declare it with "
    'job.state(..., extra={"reproducible": it}), or take `reproducible` out of the specification'
)


def departures_of(parts: Parts, *, since: int) -> list[str]:
    """Why the weights are not those of an undisturbed run any more, after a restore of step ``since``."""
    return [f"since step {since} {'; '.join(part.departures)}" for part in _reproducible(parts) if part.departures]


def _reproducible(parts: Parts) -> list[Reproducible]:
    return [part for part in parts.stateful.values() if isinstance(part, Reproducible)]


def require_kept(parts: Parts, peers: Peers, *, microbatches: int) -> str:
    """Require that every rank keeps the promise, on devices of one type. What its weights depend on, in words.

    A collective. Raises :class:`Unsupported` on all ranks if one does not.
    """
    mine = _reproducible(parts)
    trouble = _trouble(mine, microbatches)
    here: Mapping[str, Any] = mine[0].surroundings if mine and not trouble else {}
    told = peers.gather({"trouble": trouble, "here": dict(here)})
    for rank, each in enumerate(told):
        if each["trouble"]:
            raise Unsupported(f"rank {rank}: {each['trouble']}")
        if differing := departures(told[0]["here"], each["here"]):
            raise Unsupported(
                f'rank {rank} cannot give the bits that rank 0 gives: {"; ".join(differing)} ("was" is rank 0\'s). '
                "Give all nodes of the job one type of device, one torch, and one OMP_NUM_THREADS"
            )
    return f"reproducible, {microbatches} microbatches a step; " + ", ".join(f"{k} {v}" for k, v in here.items())


def _trouble(found: list[Reproducible], microbatches: int) -> str:
    if not found:
        return MISSING
    if other := next((each.share.logical for each in found if each.share.logical != microbatches), 0):
        return (
            f"the script makes {other} microbatches of a step, the job's specification says {microbatches}: "
            "pass job.microbatches to reproducible.Reproducible"
        )
    return ""
