"""What merging, launching and logging programs put in front of a line, taken off and understood.

Not for what the line says: that is ``finding``'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from evertrain.diagnosis.evidence import Moment, Origin, SourceKind
from evertrain.diagnosis.moments import leading_moment, time_of_day

PREFIXES_MAX: Final = 10
KINDS: Final = {
    "rank": SourceKind.RANK,
    "worker": SourceKind.RANK,
    "launcher": SourceKind.LAUNCHER,
    "torchrun": SourceKind.LAUNCHER,
    "elastic": SourceKind.LAUNCHER,
    "agent": SourceKind.AGENT,
    "monitor": SourceKind.AGENT,
    "health": SourceKind.AGENT,
    "dmesg": SourceKind.KERNEL,
    "kernel": SourceKind.KERNEL,
    "kern": SourceKind.KERNEL,
    "kmsg": SourceKind.KERNEL,
    "syslog": SourceKind.KERNEL,
    "journal": SourceKind.KERNEL,
    "scheduler": SourceKind.SCHEDULER,
    "slurm": SourceKind.SCHEDULER,
    "slurmctld": SourceKind.SCHEDULER,
    "kubelet": SourceKind.SCHEDULER,
    "k8s": SourceKind.SCHEDULER,
    "events": SourceKind.SCHEDULER,
    "storage": SourceKind.STORAGE,
}
_KIND: Final = "|".join(KINDS)
_NO_HOST: Final = (
    r"(?!(?:nvidia|mlx\d|nvme|sd[a-z]\d|md\d|eth\d|ib\d|en[ops]\d|task|rank|step|epoch|iter|line|pid|cuda|layer|block"
    r"|shard|bank|cpu|port|utf|int|float|bf\d|fp\d|exit|code|err|t\d|x\d|v\d|l\d|c10d|lib[\w+-]+\.so[\d.]*|gpu\d{1,2}:\s*(?:out|mem|temp))"
    r"(?![\w.-]*@))"
)
HOST: Final = rf"{_NO_HOST}[a-z](?=[a-zA-Z0-9.-]*\d)[a-zA-Z0-9.-]*[a-zA-Z0-9](?!\w)"
_IP: Final = r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeled:
    """A line without what stood in front of it."""

    origin: Origin
    at: Moment | None
    attempt: int | None
    text: str


def _rank(peeled: Peeled, match: re.Match[str]) -> Peeled:
    kind = SourceKind.RANK if peeled.origin.kind is SourceKind.UNKNOWN else peeled.origin.kind
    return replace(peeled, origin=replace(peeled.origin, kind=kind, rank=int(match["rank"])))


def _weak_rank(peeled: Peeled, match: re.Match[str]) -> Peeled:
    """A bare number is a rank only where nothing better has named one."""
    return peeled if peeled.origin.kind is not SourceKind.UNKNOWN else _rank(peeled, match)


def _node(peeled: Peeled, match: re.Match[str]) -> Peeled:
    return replace(peeled, origin=replace(peeled.origin, node=match["node"]))


def _kind(peeled: Peeled, match: re.Match[str]) -> Peeled:
    parts = match.groupdict()
    kind = KINDS.get(match["kind"].lower(), SourceKind.UNKNOWN)
    return replace(
        peeled, origin=replace(peeled.origin, kind=kind, node=parts.get("node") or peeled.origin.node, rank=None)
    )


def _label(peeled: Peeled, match: re.Match[str]) -> Peeled:
    return replace(peeled, origin=replace(peeled.origin, label=match["label"]))


def _glog(peeled: Peeled, match: re.Match[str]) -> Peeled:
    return replace(peeled, at=time_of_day(match["h"], match["m"], match["s"]))


def _attempt(peeled: Peeled, match: re.Match[str]) -> Peeled:
    node = match["node"]
    origin = replace(peeled.origin, node=node) if node else peeled.origin
    return replace(peeled, attempt=int(match["attempt"]), origin=origin)


def _nothing(peeled: Peeled, _match: re.Match[str]) -> Peeled:
    return peeled


_Apply = Callable[[Peeled, re.Match[str]], Peeled]
_PREFIXES: Final[dict[str, tuple[tuple[re.Pattern[str], _Apply], ...]]] = {
    "[": (
        (re.compile(rf"\[(?P<kind>{_KIND})(?:@(?P<node>[\w.:-]+))?\]:?\s?", re.IGNORECASE), _kind),
        (re.compile(r"\[(?:global )?rank[ :=_]*(?P<rank>\d{1,7})\]:?\s*", re.IGNORECASE), _rank),
        (re.compile(r"\[PG (?:ID|GUID)?[^\]]{0,80}?Rank (?P<rank>\d{1,7})\]\s*"), _rank),
        (re.compile(r"\[(?P<rank>\d{1,6})\]:?\s"), _weak_rank),
        (re.compile(r"\[\d+,(?P<rank>\d+)\]<std(?:out|err)>:\s?"), _rank),
        (re.compile(r"\[default(?P<rank>\d+)\]:\s?"), _weak_rank),
        (re.compile(r"\[(?P<label>pod/[\w./-]+)\]\s?"), _label),
        (
            re.compile(
                r"\[[IWEF]\d{3,4} (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:\.\d+)?)(?:\s+\d+)?(?:\s+[\w./-]+:\d+)?\]\s*"
            ),
            _glog,
        ),
        (re.compile(r"\[[IWEF] [\w./-]+:\d+\]\s*"), _nothing),
        (re.compile(rf"\[(?P<node>{HOST})\]\s+"), _node),
        (re.compile(r"\[(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]:?\s*"), _nothing),
        (re.compile(r"\[[\w./-]+\.(?:py|cc|cpp|cu|go|rs):\d+(?::\w+)?\]\s*"), _nothing),
    ),
    "(": (
        (re.compile(rf"\((?P<label>\w+) pid=\d+(?:, ip=(?P<node>{_IP}))?\)\s?"), _label),
        (re.compile(rf"\({_IP}\)\s?"), _nothing),
    ),
    "glog": (
        (
            re.compile(
                r"[IWEF]\d{4} (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:\.\d+)?)(?:(?:\s+\d+)?\s+[\w./-]+:\d+\])?\s*"
            ),
            _glog,
        ),
    ),
    "digit": (
        (re.compile(r"(?P<rank>\d{1,6}): (?=\S|\s{2})"), _weak_rank),
        (re.compile(rf"(?P<node>{_IP}):\s"), _node),
    ),
    "word": (
        (re.compile(rf"(?:(?P<node>{HOST}) )?(?P<kind>kernel|kern)(?:\[\d+\])?: (?:\w+: )?"), _kind),
        (re.compile(r"rank[ _]?(?P<rank>\d{1,7})\s*[:|]\s+", re.IGNORECASE), _rank),
        (re.compile(r"attempt[ #]?(?P<attempt>\d+)\b[:,]?\s*(?:(?:on )?node[ =:]?(?P<node>[\w.-]+))?:?\s*"), _attempt),
        (re.compile(rf"(?P<node>{HOST}):(?=\s)\s*"), _node),
        (re.compile(rf"(?P<node>{HOST}):\d+:\d+ \[\d+\] "), _node),
        (re.compile(r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)(?::[\w.]+:|\s*[:|-]|(?=\s))\s*"), _nothing),
        (re.compile(r"[\w.]+(?:\.[\w]+)+: \[(?:INFO|WARNING|ERROR|CRITICAL)\]\s*"), _nothing),
        (re.compile(r"[a-z_][\w.]* - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - "), _nothing),
        (re.compile(rf"(?P<node>{HOST}) (?=NVRM:|kernel:|mlx5_core|nvidia-)"), _node),
    ),
}


def peel(text: str, origin: Origin) -> Peeled:
    """``text`` without its prefixes; what they said of rank, node, kind, time and attempt. Keeps an indent."""
    peeled = Peeled(origin=origin, at=None, attempt=None, text=text)
    position = 0
    for _ in range(PREFIXES_MAX):
        start = position
        if found := leading_moment(text, start):
            moment, position = found
            peeled = replace(peeled, at=moment)
            continue
        for pattern, apply in _candidates(text[start : start + 1]):
            if (match := pattern.match(text, start)) and match.end() > start:
                peeled, position = apply(peeled, match), match.end()
                break
        if position == start:
            break
    return replace(peeled, text=text[position:]) if position else peeled


def _candidates(first: str) -> tuple[tuple[re.Pattern[str], _Apply], ...]:
    if first in "[(":
        return _PREFIXES.get(first, ())
    if first.isdigit():
        return _PREFIXES["digit"]
    if first in "IWEF":
        return _PREFIXES["glog"] + _PREFIXES["word"]
    return _PREFIXES["word"] if first.isalpha() else ()
