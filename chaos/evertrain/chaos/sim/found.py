"""Seeds that once broke a promise, as files that are played again for ever: what they take, and what it was.

A found seed is a golden script of one scene: the seed sets the cluster and its jobs,
the lines are the faults that matter, and no promise may be broken. Not for
scripts that people write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.plan import Planned, read_all, write_all

HEAD = "swarm seed="


class BadFound(Exception):
    """A file is no found seed; the text says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What has to be played again."""

    seed: int
    nodes: int
    hours: float
    plan: tuple[Planned, ...]


def write(found: Found, violation: Violation, *, commit: str, story: Sequence[str]) -> str:
    """The text of ``tests/golden/found/seed-N.txt``: why it is kept in comments, then what to play."""
    return "\n".join(
        [
            f"# Broken at {violation.at_s:.3f} s: {violation.invariant}.",
            f"# {violation.text}",
            f"# Found at commit {commit}. What happened then:",
            *(f"#   {line}" for line in story),
            f"{HEAD}{found.seed} nodes={found.nodes} hours={found.hours:g}",
            write_all(found.plan),
        ]
    )


def read(text: str) -> Found:
    """The inverse of :func:`write`, but for the comments. Raises BadFound, and BadPlan for a line of the plan."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    if not lines or not lines[0].startswith(HEAD):
        raise BadFound(f"a found seed begins with `{HEAD}17 nodes=16 hours=24`, not with {lines[:1] or 'nothing'}")
    try:
        options = dict(word.split("=") for word in lines[0].removeprefix("swarm ").split())
        seed, nodes, hours = int(options["seed"]), int(options["nodes"]), float(options["hours"])
    except (KeyError, ValueError) as err:
        raise BadFound(f"{lines[0]!r} is not understood, write: {HEAD}17 nodes=16 hours=24") from err
    return Found(seed=seed, nodes=nodes, hours=hours, plan=read_all("\n".join(lines[1:])))
