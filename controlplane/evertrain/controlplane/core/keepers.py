"""Which node keeps copies of another one's memory: one that does not fail with it, as far as labels tell. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

DOMAINS = ("block", "leaf", "rack")
"""Labels of what nodes share and may lose together, the widest first."""


def keepers(labels: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
    """For each member of a gang, given all members' labels, the one that keeps copies of its memory.

    Each keeps those of one other, never its own. It is of another failure domain where no domain has more than half
    of the members; of several kinds of domain the widest of which that is true counts. Without labels it is the next
    in the ring. Equal for equal members and labels.
    """
    count = len(labels)
    if count < 2:
        return ()
    domains = _domains(labels)
    # Side by side in this order are those of one domain: a shift by the largest of them leads out of each.
    order = sorted(range(count), key=lambda at: (domains[at], at))
    shift = max(Counter(domains).values())
    found = dict(zip(order, order[shift:] + order[:shift], strict=True))
    return tuple(found[at] for at in range(count))


def _domains(labels: Sequence[Mapping[str, str]]) -> list[str]:
    """The failure domain of each member; each its own where nothing better is known."""
    for label in DOMAINS:
        found = [each.get(label, "") for each in labels]
        if all(found) and 2 * max(Counter(found).values()) <= len(found):
            return found
    return [f"{at:09d}" for at in range(len(labels))]
