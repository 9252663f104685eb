"""Labelled cases: their form, and how other people's labels and action words map to ours.

docs/classification.md shows the mapping. Not for scoring: that is ``scoring``'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from evertrain.diagnosis.vocabulary import TREATMENT, FailureClass, Group

C = FailureClass
LABELS: Final[Mapping[str, tuple[FailureClass, ...]]] = {
    "hardware_gpu": (C.HARDWARE_GPU, C.HARDWARE_GPU_SUSPECT),
    "hardware_gpu_suspect": (C.HARDWARE_GPU_SUSPECT,),
    "hardware_host": (C.HARDWARE_HOST,),
    "hang_library": (C.HANG_SILENT,),
    "preemption_or_abort_fallout": (C.PREEMPTION, C.EXTERNAL_TERMINATION, C.USER_CODE),
    "killed_unknown": (C.KILLED,),
    "unknown_needs_other_rank": (C.UNKNOWN,),
    "worker_failure_masked": (C.USER_CODE, C.UNKNOWN),
    "gang_restart_incomplete": (C.GANG_RESTART,),
    "rendezvous_closed": (C.RENDEZVOUS, C.EXTERNAL_TERMINATION),
    "software_user": (C.USER_CODE, C.USER_CONFIG, C.ELASTIC_INCOMPATIBLE),
    "oom_deterministic": (C.GPU_OOM, C.HOST_OOM),
    "network": (C.FABRIC_LINK, C.FABRIC_CONFIG),
    "storage": (C.STORAGE_FAULT, C.STORAGE_FULL, C.STORAGE_QUOTA, C.CHECKPOINT_CORRUPT),
    "numerical": (C.NUMERICAL_DIVERGENCE,),
}
"""Labels of the field cases and of the taxonomy that are no class of ours by another spelling."""
GROUPS_TOO: Final[Mapping[FailureClass, frozenset[Group]]] = {
    C.FABRIC_CONFIG: frozenset({Group.PROGRAM}),
    C.PORT_COLLISION: frozenset({Group.PROGRAM, Group.UNKNOWN, Group.TERMINATION}),
    C.NODE_CONFIG: frozenset({Group.PROGRAM}),
    C.RENDEZVOUS: frozenset({Group.TERMINATION}),
    C.GANG_RESTART: frozenset({Group.UNKNOWN}),
    C.DATA_INPUT: frozenset({Group.PROGRAM}),
    C.EXTERNAL_SERVICE: frozenset({Group.UNKNOWN, Group.TERMINATION}),
    C.NUMERICAL_DIVERGENCE: frozenset({Group.UNKNOWN}),
}
"""Groups that also count as right where a label leaves open who has to act."""
_ACTION: Final = re.compile(
    r"\b(?:RETRY_EXCLUDE|CAPTURE_THEN_RETRY|BACKOFF_RETRY|FREE_SPACE_THEN_RETRY|REQUEUE_FREE|ROLLBACK_CKPT|STOP_NOTIFY"
    r"|FIX_NODE|COLLECT|CORDON|DRAIN|RETRY|STOP)\b"
)
_NODE: Final = re.compile(r"\b(?:DRAIN|CORDON|RETRY_EXCLUDE)\((?!node\))(?P<node>[\w.:-]+)\)")
_RANK: Final = re.compile(r"\brank (\d+)\b")


class BadCase(ValueError):
    """A labelled case cannot be used; says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A log with the right answer."""

    id: str
    source: str
    log: str
    ranks: Mapping[str, str]
    """The same by who wrote it; empty when the case is one text."""
    classes: tuple[FailureClass, ...]
    groups: frozenset[Group]
    actions: frozenset[str]
    action_text: str
    culprit: str | None
    """``rank 3`` or ``node n7``; None when the case names nobody."""
    cause: tuple[str, ...]
    """Entries of ``ranks``, or parts of lines, that hold the cause."""


def parse_cases(text: str, name: str) -> tuple[Case, ...]:
    """Cases of a JSONL file. Raises BadCase."""
    cases = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
            cases.append(_case(raw))
        except (ValueError, KeyError, TypeError) as err:
            raise BadCase(
                f"{name}:{number}: error: no labelled case: {type(err).__name__}: {err}; "
                "needed are id, log, expected_class and expected_action"
            ) from err
    if not cases:
        raise BadCase(f"{name}:1: error: no case in it")
    return tuple(cases)


def classes_of(label: str) -> tuple[FailureClass, ...]:
    """Our classes that a label means. Raises ValueError for a label that is unknown."""
    known = LABELS.get(label.replace("-", "_"))
    return known or (FailureClass(label.replace("_", "-")),)


def _case(raw: dict[str, Any]) -> Case:
    classes = classes_of(raw["expected_class"])
    groups = {TREATMENT[cls].group for cls in classes}.union(*(GROUPS_TOO.get(cls, frozenset()) for cls in classes))
    ranks = {str(key).partition(" ")[0]: str(value) for key, value in raw.get("ranks", {}).items()}
    whole = all(line.strip() in raw["log"] for value in ranks.values() for line in value.splitlines())
    culprit = raw["expected_culprit"] if "expected_culprit" in raw else _culprit(raw)
    cause = tuple(raw.get("cause") or _cause(culprit, ranks))
    return Case(
        id=str(raw["id"]),
        source=str(raw.get("source", "")),
        log=str(raw["log"]),
        ranks=ranks if whole else {},
        classes=classes,
        groups=frozenset(groups),
        actions=frozenset(_ACTION.findall(raw["expected_action"])),
        action_text=str(raw["expected_action"]),
        culprit=culprit,
        cause=cause,
    )


def _culprit(raw: dict[str, Any]) -> str | None:
    """Who is to blame, as far as the label's words name somebody that the log names too."""
    if (match := _NODE.search(raw["expected_action"])) and match["node"] in raw["log"]:
        return f"node {match['node']}"
    ranks = _RANK.findall(str(raw.get("expected_root_cause", "")))
    return f"rank {ranks[0]}" if len(set(ranks)) == 1 else None


def _cause(culprit: str | None, ranks: Mapping[str, str]) -> tuple[str, ...]:
    if culprit is None:
        return ()
    kind, _, name = culprit.partition(" ")
    return tuple(key for key in ranks if (key == name if kind == "rank" else key.endswith(f"@{name}")))
