"""What merging, launching and logging programs put in front of a line, taken off and understood.

Not for what the line says: that is ``finding``'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

from evertrain.diagnosis.evidence import Clock, Moment, Origin, SourceKind
from evertrain.diagnosis.moments import leading_moment, time_of_day

PREFIXES_MAX: Final = 10
LOOK_CHARS: Final = 120
"""How much of a text is looked at to see whether it begins with a prefix at all."""
_TIME_FIRST: Final = -1
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")  # of bytes: far faster than of text
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
    r"|shard|bank|cpu|port|utf|int|float|bf\d|fp\d|exit|code|err|t\d|x\d|v\d|l\d|c10d|stage|trainer|actor|default|proc|thread|phase|client|replica|pipeline|local|group|lib[\w+-]+\.so[\d.]*|gpu\d{1,2}:\s*(?:out|mem|temp))"
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


@dataclass(slots=True)
class _Head:
    """What the prefixes of one line have said so far."""

    kind: SourceKind
    node: str | None
    rank: int | None
    label: str
    at: Moment | None = None
    attempt: int | None = None


def _rank(head: _Head, match: re.Match[str]) -> None:
    if head.kind is SourceKind.UNKNOWN:
        head.kind = SourceKind.RANK
    head.rank = int(match["rank"] or match.groupdict()["also"])


def _weak_rank(head: _Head, match: re.Match[str]) -> None:
    """A bare number is a rank only where nothing better has named one."""
    if head.kind is SourceKind.UNKNOWN:
        _rank(head, match)


def _node(head: _Head, match: re.Match[str]) -> None:
    head.node = match["node"]


def _node_and_rank(head: _Head, match: re.Match[str]) -> None:
    _node(head, match)
    _rank(head, match)


def _kind(head: _Head, match: re.Match[str]) -> None:
    head.kind = KINDS.get(match["kind"].lower(), SourceKind.UNKNOWN)
    head.node = match.groupdict().get("node") or head.node
    head.rank = None


def _label(head: _Head, match: re.Match[str]) -> None:
    head.label = match["label"]
    head.node = match.groupdict().get("node") or head.node


def _process_group(head: _Head, match: re.Match[str]) -> None:
    _label(head, match)
    _rank(head, match)


def _glog(head: _Head, match: re.Match[str]) -> None:
    head.at = time_of_day(match["h"], match["m"], match["s"])


def _kmsg(head: _Head, match: re.Match[str]) -> None:
    """A raw record of /dev/kmsg."""
    head.kind = SourceKind.KERNEL
    head.at = Moment(clock=Clock.UPTIME, at_s=int(match["us"]) / 1e6)


def _attempt(head: _Head, match: re.Match[str]) -> None:
    head.attempt = int(match["attempt"])
    head.node = match["node"] or head.node


def _nothing(_head: _Head, _match: re.Match[str]) -> None:
    """The prefix says nothing that is kept."""


_Apply = Callable[[_Head, re.Match[str]], None]
_PREFIXES: Final[dict[str, tuple[tuple[re.Pattern[str], _Apply], ...]]] = {
    "[": (
        (re.compile(r"\[(?:global )?rank[ :=_]*(?P<rank>\d{1,7})\]:?\s*", re.IGNORECASE), _rank),
        (
            re.compile(
                r"\[[IWEF]\d{3,4} (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:\.\d+)?)(?:\s+\d+)?(?:\s+[\w./-]+:\d+)?\]\s*"
            ),
            _glog,
        ),
        (re.compile(rf"\[(?P<kind>{_KIND})(?:@(?P<node>[\w.:-]+))?\]:?\s?", re.IGNORECASE), _kind),
        (re.compile(r"\[(?P<label>PG [^\]]{0,80}?)\s*Rank (?P<rank>\d{1,7})\]\s*"), _process_group),
        (re.compile(r"\[(?P<rank>\d{1,6})\]:?\s"), _weak_rank),
        (re.compile(rf"\[(?P<node>{HOST})[:/ ](?:rank[ :=_]*)?(?P<rank>\d{{1,7}})\]:?\s*"), _node_and_rank),
        (re.compile(r"\[(?P<rank>\d{1,6})/\d{1,6}\]:?\s"), _weak_rank),
        (re.compile(r"\[\d+,(?P<rank>\d+)\]<std(?:out|err)>:\s?"), _rank),
        (re.compile(r"\[default(?P<rank>\d+)\]:\s?"), _weak_rank),
        (re.compile(r"\[(?P<label>pod/[\w./-]+)\]\s?"), _label),
        (re.compile(r"\[[IWEF] [\w./-]+:\d+\]\s*"), _nothing),
        (re.compile(rf"\[(?P<node>{HOST})\]\s+"), _node),
        (re.compile(r"\[(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]:?\s*"), _nothing),
        (re.compile(r"\[[\w./-]+\.(?:py|cc|cpp|cu|go|rs):\d+(?::\w+)?\]\s*"), _nothing),
    ),
    "(": (
        (re.compile(r"\((?:global )?rank[ :=_]*(?P<rank>\d{1,7})\):?\s*", re.IGNORECASE), _rank),
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
    "<": ((re.compile(r"<\d{1,3}>"), _nothing),),
    "digit": (
        (re.compile(r"\d{1,3},\d+,(?P<us>\d+),[^;]{0,80};"), _kmsg),
        (re.compile(r"(?P<rank>\d{1,6}): (?=\S|\s{2})"), _weak_rank),
        (re.compile(rf"(?P<node>{_IP}):\s"), _node),
    ),
    "word": (
        (re.compile(rf"(?:(?P<node>{HOST}) )?(?P<kind>kernel|kern)(?:\[\d+\])?: (?:\w+: )?"), _kind),
        (re.compile(r"(?:stdout|stderr) [FP] "), _nothing),
        (
            re.compile(
                r"(?:global_?)?rank(?:[ _]?(?P<rank>\d{1,7})\s*[:|>\]]+\s+|=(?P<also>\d{1,7})[\s,;]+)", re.IGNORECASE
            ),
            _rank,
        ),
        (re.compile(r"(?P<label>[a-z][\w.-]*)\s{0,20}\|\s+(?=\S)"), _label),
        (re.compile(r"(?:time|ts)=\S+\s+"), _nothing),
        (re.compile(r"level=\w+\s+"), _nothing),
        (re.compile(r"msg=\"?"), _nothing),
        (re.compile(r"attempt[ #]?(?P<attempt>\d+)\b[:,]?\s*(?:(?:on )?node[ =:]?(?P<node>[\w.-]+))?:?\s*"), _attempt),
        (re.compile(rf"(?P<node>{HOST}):(?=\s)\s*"), _node),
        (re.compile(r"(?P<node>[a-zA-Z][a-zA-Z0-9.-]*):\d+:\d+ \[\d+\] "), _node),
        (re.compile(r"(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)(?::[\w.]+:|\s*[:|-]|(?=\s))\s*"), _nothing),
        (re.compile(r"[\w.]+(?:\.[\w]+)+: \[(?:INFO|WARNING|ERROR|CRITICAL)\]\s*"), _nothing),
        (re.compile(r"[a-z_][\w.]* - (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - "), _nothing),
        (re.compile(rf"(?P<node>{HOST}) (?=NVRM:|kernel:|mlx5_core|nvidia-)"), _node),
    ),
}


def peel(text: str, origin: Origin) -> Peeled:
    """``text`` without its prefixes; what they said of rank, node, kind, time and attempt. Keeps an indent."""
    head = _Head(origin.kind, origin.node, origin.rank, origin.label)
    position = 0
    for _ in range(PREFIXES_MAX):
        start = position
        likely = _likely(masked(text[start : start + LOOK_CHARS]))
        if likely is None:
            break
        position = _step(text, start, head, likely)
        if position == start:
            break
    return Peeled(
        origin=_origin(head.kind, head.node, head.rank, head.label) if position else origin,
        at=head.at,
        attempt=head.attempt,
        text=text[position:],
    )


def masked(text: str) -> str:
    """``text`` with every digit 0: equal for lines that differ in numbers only."""
    return text.encode("utf-8", "surrogatepass").translate(_DIGITS).decode("utf-8", "surrogatepass")


def _step(text: str, start: int, head: _Head, likely: int) -> int:
    """Take one prefix off at ``start``; where the text goes on. ``likely`` is tried first."""
    if likely == _TIME_FIRST and (found := leading_moment(text, start)):
        head.at, position = found
        return position
    candidates = _candidates(text[start : start + 1])
    first = candidates[likely : likely + 1] if likely >= 0 else ()
    for pattern, apply in chain(first, candidates):
        if (match := pattern.match(text, start)) and match.end() > start:
            apply(head, match)
            return match.end()
    return start


@lru_cache(maxsize=65_536)
def _likely(form: str) -> int | None:
    """Which prefix a text of this form (digits as 0) can begin with: its number, a time, or None for none at all.

    Lines of a thousand ranks have few forms. No prefix asks for one digit rather than another, but for times.
    """
    if leading_moment(form, 0):
        return _TIME_FIRST
    fits = (number for number, (pattern, _) in enumerate(_candidates(form[:1])) if pattern.match(form))
    return next(fits, None)


@lru_cache(maxsize=16_384)
def _origin(kind: SourceKind, node: str | None, rank: int | None, label: str) -> Origin:
    return Origin(kind=kind, node=node, rank=rank, label=label)


@lru_cache(maxsize=1_024)
def _candidates(first: str) -> tuple[tuple[re.Pattern[str], _Apply], ...]:
    if not first:
        return ()
    if first in "[(<":
        return _PREFIXES[first]
    if first.isdigit():
        return _PREFIXES["digit"]
    if first in "IWEF":
        return _PREFIXES["glog"] + _PREFIXES["word"]
    return _PREFIXES["word"] if first.isalpha() else ()
