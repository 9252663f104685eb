"""The order of the rules, as one table: the first that fits decides. What each says stands in its own module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from evertrain.diagnosis import causes, waiting
from evertrain.diagnosis.drafts import Draft
from evertrain.diagnosis.picture import Picture

Rule = Callable[[Picture], Draft | None]

RULES: Final[tuple[tuple[str, Rule], ...]] = (
    # Who wanted the end explains all errors after it.
    ("intent", causes.intent),
    # The driver's own word about a GPU is better than a table of Xids.
    ("driver-verdict", causes.driver_verdict),
    # Hardware is asked before programs: a broken GPU makes good programs raise anything.
    ("hardware", causes.hardware),
    ("repeated-on-one-gpu", causes.repeated_on_one_gpu),
    ("repeated-on-one-node", causes.repeated_on_one_node),
    # What somebody said plainly, the earliest first.
    ("said-cause", causes.said_cause),
    # From here on nobody said the cause.
    ("suspected-gpu", causes.suspected_gpu),
    ("stopped-from-outside", waiting.stopped_from_outside),
    ("announced-stall", waiting.announced_stall),
    ("fabric", waiting.fabric),
    ("unclear-error", waiting.unclear_error),
    # Collectives are attributed only when nobody had an error of his own.
    ("different-collectives", waiting.different_collectives),
    ("elsewhere", waiting.elsewhere),
    ("waits", waiting.waits),
    ("never-met", waiting.never_met),
    ("victims-only", waiting.victims_only),
    ("nothing", waiting.nothing),
)


def decide(picture: Picture) -> tuple[str, Draft]:
    """The name of the rule that fits first, and what it says. The last always fits."""
    for name, rule in RULES:
        if draft := rule(picture):
            return name, draft
    raise AssertionError("the last rule fits always")
