"""Everything that can happen to the files of a checkpoint between its writing and its reading, drawn from a seed.

Not for faults of a storage that raise errors: what is here looks like success.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from evertrain.checkpoint.manifest import MANIFEST_NAME, CheckpointName, decode_manifest, encode
from support.checkpoints import Checkpoint

Files = dict[str, bytes]
"""Content by name, of one folder."""

SECTOR_BYTES: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A checkpoint that something happens to, and others that may get mixed up with it."""

    written: Checkpoint
    files: Mapping[str, bytes]
    others: tuple[Mapping[str, bytes], ...]
    """Of another step, another generation, and last of another job; file names are the same."""

    @property
    def name(self) -> str:
        """Of its folder."""
        return str(self.written.manifest.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """What became of the victim."""

    kind: str
    files: Files
    name: str
    """Of its folder, which is another where it was renamed."""
    foreign: bool = False
    """Its manifest is sound and belongs in a folder of this name: only who was told the digest can know better."""

    def __str__(self) -> str:
        return f"{self.kind} of {self.name}"


def corrupt(victim: Victim, chance: random.Random) -> Corruption:
    """One thing that happens to it, which changes something."""
    while True:
        kind = chance.choice(sorted(_KINDS))
        files = _KINDS[kind](dict(victim.files), victim, chance)
        name = _other_name(victim, chance) if kind == "renamed folder" else victim.name
        if files != victim.files or name != victim.name:
            foreign = kind == "edited manifest" or files.get(MANIFEST_NAME) == victim.others[-1][MANIFEST_NAME]
            return Corruption(kind=kind, files=files, name=name, foreign=foreign)


def _flipped(files: Files, victim: Victim, chance: random.Random) -> Files:
    name = chance.choice([name for name in sorted(files) if files[name]])
    return _flip(files, name, chance)


def _flipped_manifest(files: Files, victim: Victim, chance: random.Random) -> Files:
    return _flip(files, MANIFEST_NAME, chance)


def _flip(files: Files, name: str, chance: random.Random) -> Files:
    data = bytearray(files[name])
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return {**files, name: bytes(data)}


def _truncated(files: Files, victim: Victim, chance: random.Random) -> Files:
    name = chance.choice(sorted(files))
    size = len(files[name])
    return {**files, name: files[name][: chance.choice((0, size - 1, size // 2, chance.randrange(size + 1)))]}


def _extended(files: Files, victim: Victim, chance: random.Random) -> Files:
    name = chance.choice(sorted(files))
    tail = chance.choice((b"\0", b" ", b"\n", bytes(64), chance.randbytes(chance.randrange(1, 100)), files[name]))
    return {**files, name: files[name] + tail}


def _missing(files: Files, victim: Victim, chance: random.Random) -> Files:
    for name in chance.sample(sorted(files), chance.choice((1, 1, 2, len(files)))):
        del files[name]
    return files


def _swapped(files: Files, victim: Victim, chance: random.Random) -> Files:
    one, other = (f"rank-{rank:05d}" for rank in chance.sample(range(victim.written.manifest.world_size), 2))
    ends = chance.choice(((".bin",), (".json",), (".bin", ".json")))
    changed = {f"{one}{end}": files[f"{other}{end}"] for end in ends}
    return {**files, **changed, **{f"{other}{end}": files[f"{one}{end}"] for end in ends}}


def _duplicated(files: Files, victim: Victim, chance: random.Random) -> Files:
    count = victim.written.manifest.world_size
    source, target = chance.sample(range(count + 1), 2)
    source = source if source < count else 0
    for end in chance.choice(((".bin",), (".json",), (".bin", ".json"))):
        files[f"rank-{target:05d}{end}"] = files[f"rank-{source:05d}{end}"]
    return files


def _stale(files: Files, victim: Victim, chance: random.Random) -> Files:
    other = chance.choice(victim.others)
    stem = f"rank-{chance.randrange(victim.written.manifest.world_size):05d}"
    names = chance.choice(
        (
            (f"{stem}.bin",),
            (f"{stem}.json",),
            (f"{stem}.bin", f"{stem}.json"),
            (MANIFEST_NAME,),
            tuple(sorted(files)[:-1]),
        )
    )
    return {**files, **{name: other[name] for name in names}}


def _torn_manifest(files: Files, victim: Victim, chance: random.Random) -> Files:
    data, other = files[MANIFEST_NAME], chance.choice(victim.others)[MANIFEST_NAME]
    at = chance.randrange(len(data))
    torn = (data[:at], data[:at] + bytes(len(data) - at), data[:at] + other[at:], data + data, data[at:] + data[:at])
    return {**files, MANIFEST_NAME: chance.choice(torn)}


def _lost_sector(files: Files, victim: Victim, chance: random.Random) -> Files:
    name = chance.choice([name for name in sorted(files) if len(files[name]) > SECTOR_BYTES])
    data = bytearray(files[name])
    at, source = (SECTOR_BYTES * chance.randrange(len(data) // SECTOR_BYTES) for _ in range(2))
    lost = chance.choice(
        (bytes(SECTOR_BYTES), data[source : source + SECTOR_BYTES], chance.choice(victim.others)[name])
    )
    data[at : at + SECTOR_BYTES] = bytes(lost)[:SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
    return {**files, name: bytes(data)}


def _edited_record(files: Files, victim: Victim, chance: random.Random) -> Files:
    """Data and record fit each other again, as after a repair by hand; the manifest knows better."""
    name = f"rank-{chance.randrange(victim.written.manifest.world_size):05d}.json"
    record = json.loads(files[name])
    field, value = chance.choice(
        (("step", record["step"] + 1), ("generation", record["generation"] - 1), ("job", "j9"), ("hash", "sha256"))
    )
    record[field] = value
    return {**files, name: json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"}


def _unchanged(files: Files, victim: Victim, chance: random.Random) -> Files:
    return files


def _other_name(victim: Victim, chance: random.Random) -> str:
    true = victim.written.manifest.name
    step, generation = chance.choice(((0, 1), (0, -1), (20, 0), (-10, 0), (chance.randrange(1, 10**6), 7)))
    return str(CheckpointName(step=true.step + step, generation=true.generation + generation))


def _edited_manifest(files: Files, victim: Victim, chance: random.Random) -> Files:
    manifest = decode_manifest(files[MANIFEST_NAME])
    edited = chance.choice(
        (
            replace(manifest, tokens=manifest.tokens + 1),
            replace(manifest, parent_path="/elsewhere"),
            replace(manifest, job=""),
        )
    )
    return {**files, MANIFEST_NAME: encode(edited)}


def _another_whole(files: Files, victim: Victim, chance: random.Random) -> Files:
    return dict(victim.others[-1])


_KINDS: Final[dict[str, Callable[[Files, Victim, random.Random], Files]]] = {
    "flipped bits": _flipped,
    "flipped bits in the manifest": _flipped_manifest,
    "truncation": _truncated,
    "extension": _extended,
    "missing files": _missing,
    "swapped ranks": _swapped,
    "duplicated rank": _duplicated,
    "stale files": _stale,
    "torn manifest": _torn_manifest,
    "lost sector": _lost_sector,
    "edited record": _edited_record,
    "renamed folder": _unchanged,
    "edited manifest": _edited_manifest,
    "another whole checkpoint": _another_whole,
}
