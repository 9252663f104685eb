"""What the name of a file says of who wrote it. Looks at names only, never into a file."""

from __future__ import annotations

import re
from typing import Final

from evertrain.diagnosis.evidence import Origin, SourceKind
from evertrain.diagnosis.prefixes import KINDS

_SUFFIX: Final = re.compile(r"(?:\.(?:log|txt|out|err|json|jsonl))+$")
_KIND: Final = re.compile(rf"^(?P<kind>{'|'.join(KINDS)})(?:@(?P<node>[\w.-]+)|[._-](?P<more>[\w.-]+))?$")
_NODE_KIND: Final = re.compile(rf"^(?P<node>[\w-]+?)[@._-](?P<kind>{'|'.join(KINDS)})$")
_RANK: Final = re.compile(r"^(?:.*[ ._-])?(?:rank|worker|task|proc)[ ._-]?(?P<rank>\d{1,7})(?:[._-].*)?$")
_BARE: Final = re.compile(r"^(?P<rank>\d{1,7})$")
_STREAM: Final = re.compile(r"^(?:stdout|stderr|output|error)$")
_HOST: Final = re.compile(r"^(?:node|host|gpu|dgx|hgx|gn|cn|compute|rack|ip-|n|h|g)[a-zA-Z0-9.-]*\d[a-zA-Z0-9.-]*$")
"""Folders that are taken for nodes; others may be runs and attempts, which nobody should drain."""


def origin_of(name: str) -> Origin:
    """``dmesg@n3``, ``node-7/rank3.log``, ``attempt_0/3/stderr.log`` and the like; nothing known for other names."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in {"", "."}]
    if not parts:
        return Origin()
    node = next((part for part in reversed(parts[:-1]) if _HOST.match(part) and not _RANK.match(part)), None)
    last = _SUFFIX.sub("", parts[-1])
    if (match := _KIND.match(last)) and match["kind"] not in {"rank", "worker"}:
        more = match["more"] if match["more"] and _HOST.match(match["more"]) else None
        return Origin(kind=KINDS[match["kind"]], node=match["node"] or more or node, label=name)
    if match := _NODE_KIND.match(last):
        return Origin(kind=KINDS[match["kind"]], node=match["node"], label=name)
    if match := _RANK.match(last) or _BARE.match(last):
        return Origin(kind=SourceKind.RANK, node=node, rank=int(match["rank"]), label=name)
    if _STREAM.match(last) and len(parts) > 1 and (match := _BARE.match(parts[-2]) or _RANK.match(parts[-2])):
        return Origin(kind=SourceKind.RANK, node=node, rank=int(match["rank"]), label=name)
    return Origin(node=node)
