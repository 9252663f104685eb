"""Lists in sentences. A sentence stays short, however many nodes it is about: it is stored with the job."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

NAMED_MAX = 4


def some(items: Collection[str], *, between: str = ", ") -> str:
    """The first few of ``items``, and how many more there are."""
    named = between.join(islice(items, NAMED_MAX))
    more = len(items) - NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
