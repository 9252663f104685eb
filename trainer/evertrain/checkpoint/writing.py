"""Writes a checkpoint to storage: a rank's shard, and the commit when all ranks have theirs there. No collective.

Ranks meet at the storage alone: each leaves its :class:`Written` (or
:class:`Failed`) in the checkpoint's folder, and one of them, the committer,
waits for all and writes the manifest. So a save goes on when the process that
asked for it has died.

Errors::

    SaveFailed (RuntimeError)    nothing was committed; the text says which rank could not do what
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from evertrain.checkpoint.digests import content_digest, digest
from evertrain.checkpoint.manifest import (
    ALIGNMENT,
    BLOCK_BYTES,
    DATA_SUFFIX,
    MANIFEST_NAME,
    CheckpointManifest,
    Entry,
    RankRecord,
    Shard,
    data_name,
    encode,
    padded,
    record_name,
    sha256,
)
from evertrain.checkpoint.storage.api import Missing, Storage, StorageError
from evertrain.contract.wire import from_dict, to_dict

NOTE_BYTES_MAX: Final = 1 << 20
GIVEN_UP: Final = "given-up"
"""In the folder of a save that failed."""
POLL_FIRST_S: Final = 0.005
POLL_MAX_S: Final = 0.5


class SaveFailed(RuntimeError):
    """The save did not complete. Says which rank could not do what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a rank tells the committer: the shard it wrote, or why it could not."""

    rank: int
    shard: Shard | None = None
    failure: str = ""
    alike: Mapping[str, str] = field(default_factory=dict)
    """Digests of what all ranks should hold alike, by part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A checkpoint that is complete on storage."""

    path: str
    digest: str
    bytes_total: int
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A piece of a tensor in memory; its digests cover the zeros up to the next multiple of the alignment as well."""

    entry: Entry
    """Its place in the whole tensor; ``start`` is set when it is written."""
    data: memoryview


def digests_of(data: memoryview, *, hash_name: str) -> tuple[str, ...]:
    """Digests of the blocks of ``data``, whose length is a multiple of the alignment."""
    assert not data.nbytes % ALIGNMENT, "regions are padded"
    return tuple(digest(hash_name, data[at : at + BLOCK_BYTES]) for at in range(0, data.nbytes, BLOCK_BYTES))


def write_shard(storage: Storage, folder: str, draft: RankRecord, regions: Sequence[Region]) -> Shard:
    """Write the two files of a rank. Raises :class:`StorageError`."""
    entries, end = [], 0
    for region in regions:
        entries.append(replace(region.entry, start=end))
        end += padded(region.entry.bytes)
    record = replace(draft, entries=tuple(entries), bytes=end)
    storage.write(f"{folder}/{data_name(draft.rank)}", _blocks(regions))
    data = encode(record)
    storage.write(f"{folder}/{record_name(draft.rank)}", [memoryview(data)])
    return Shard(
        rank=draft.rank,
        bytes=end,
        record_bytes=len(data),
        record_sha256=sha256(data),
        content=content_digest(record.entries),
    )


def leave_note(storage: Storage, folder: str, note: Note) -> None:
    """Tell the committer. Raises :class:`StorageError`."""
    storage.create(f"{folder}/{_note_name(note.rank)}", json.dumps(to_dict(note)).encode())


def is_committed(names: Collection[str]) -> bool:
    """Whether a folder with these files is a checkpoint. A marker alone is what a committer left that was too late.

    (With some of the ranks' files missing it is one, and damaged: verification says so.)
    """
    return MANIFEST_NAME in names and any(name.endswith(DATA_SUFFIX) for name in names)


def give_up(storage: Storage, folder: str) -> bool:
    """Tell those who watch that nothing will be committed here; False: it was after all, and stays.

    What is there goes; what still comes is swept later. Raises :class:`StorageError`.
    """
    storage.create(f"{folder}/{GIVEN_UP}", b"")  # first: others may still write, and a folder in use may not go
    found = storage.list(folder)
    if is_committed(found):
        return False
    for name in found:
        if name != GIVEN_UP:
            storage.remove(f"{folder}/{name}")
    return True


def is_given_up(storage: Storage, folder: str) -> bool:
    """Whether the committer has given this save up. Raises :class:`StorageError`."""
    return GIVEN_UP in storage.list(folder)


def commit(
    storage: Storage,
    folder: str,
    draft: CheckpointManifest,
    *,
    deadline_s: float,
    parent: CheckpointManifest | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Committed:
    """Wait until all ranks have left a note, then write the manifest. Raises :class:`SaveFailed`.

    ``parent`` is the checkpoint before: a save whose tensors are all the same
    as its, though steps were made, holds something stale and is refused.
    """
    notes = _notes(storage, folder, draft.world_size, deadline_s=deadline_s, clock=clock, sleep=sleep)
    shards = _alike(notes)
    _require_there(storage, folder, shards)
    manifest = replace(draft, shards=tuple(shards))
    if parent is not None and is_stale(manifest, parent):
        raise SaveFailed(
            f"every tensor is the same as at step {parent.step}, though {manifest.step - parent.step} steps were made "
            "since: the declared state is not what is trained (a copy, or a model that was replaced)"
        )
    data = encode(manifest)
    try:
        storage.create(f"{folder}/{MANIFEST_NAME}", data)
        _require_not_swept(storage, folder, shards)
    except StorageError as err:
        raise SaveFailed(str(err)) from err
    with suppress(StorageError):  # one that stays means nothing
        for rank in range(draft.world_size):
            storage.remove(f"{folder}/{_note_name(rank)}")
    return committed_as(manifest, data, path=_joined(storage.url, folder))


def committed_as(manifest: CheckpointManifest, data: bytes, *, path: str) -> Committed:
    """What is told of the checkpoint at ``path``, whose manifest is ``data``."""
    return Committed(path=path, digest=sha256(data), bytes_total=manifest.bytes_total, samples=manifest.samples)


def is_stale(manifest: CheckpointManifest, parent: CheckpointManifest) -> bool:
    """Whether steps were made since ``parent`` and yet no tensor differs. Undecided, so False, after a resize."""
    if manifest.step <= parent.step or manifest.world_size != parent.world_size:
        return False
    pairs = list(zip(manifest.shards, parent.shards, strict=True))
    return any(shard.bytes for shard in manifest.shards) and all(
        now.content and now.content == before.content for now, before in pairs
    )


def _notes(
    storage: Storage,
    folder: str,
    world_size: int,
    *,
    deadline_s: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[Note]:
    until, pause_s = clock() + deadline_s, POLL_FIRST_S
    found: dict[int, Note] = {}
    while True:
        try:
            names = set(storage.list(folder))
            for rank in range(world_size):
                if rank not in found and _note_name(rank) in names:
                    found[rank] = _note_in(storage, folder, rank)
        except StorageError as err:
            raise SaveFailed(str(err)) from err
        missing = [rank for rank in range(world_size) if rank not in found]
        if not missing:
            return [found[rank] for rank in range(world_size)]
        if clock() >= until:
            raise SaveFailed(
                f"no word of rank {missing[0]} in {_joined(storage.url, folder)} within {deadline_s:.0f} s "
                f"({len(missing)} of {world_size} are missing): its node may have died, or does not share this storage"
            )
        sleep(pause_s)
        pause_s = min(2 * pause_s, POLL_MAX_S)


def _note_in(storage: Storage, folder: str, rank: int) -> Note:
    """The note of ``rank``; a rank that failed ends the save at once, whatever the others do."""
    try:
        data = storage.read(f"{folder}/{_note_name(rank)}", bytes_max=NOTE_BYTES_MAX)
        note = from_dict(Note, json.loads(data))
    except (Missing, ValueError) as err:
        raise SaveFailed(f"rank {rank}: its note cannot be read: {err}") from err
    if note.shard is None or note.shard.rank != rank:
        raise SaveFailed(note.failure or f"rank {rank}: its note is of another rank")
    return note


def _require_there(storage: Storage, folder: str, shards: Sequence[Shard]) -> None:
    """What the notes tell of is where this rank looks for it: it is one storage, and nobody swept it away."""
    for shard in shards:
        for name, expected in ((data_name(shard.rank), shard.bytes), (record_name(shard.rank), shard.record_bytes)):
            try:
                found = storage.size(f"{folder}/{name}")
            except Missing as err:
                raise SaveFailed(
                    f"{name}, which rank {shard.rank} wrote, is not in {_joined(storage.url, folder)}: "
                    "the checkpoint directory must be one that all nodes share"
                ) from err
            except StorageError as err:
                raise SaveFailed(str(err)) from err
            if found != expected:
                raise SaveFailed(f"{name} has {found} bytes in {_joined(storage.url, folder)}, {expected} were written")


def _require_not_swept(storage: Storage, folder: str, shards: Sequence[Shard]) -> None:
    """What was just committed is there. If a newer generation swept meanwhile, what it left is no checkpoint.

    Of a committer and a sweeper one sees the other: both put down their mark first (the manifest, :data:`GIVEN_UP`)
    and look for the other's then.
    """
    found = set(storage.list(folder))
    parts = {name for shard in shards for name in (data_name(shard.rank), record_name(shard.rank))}
    if GIVEN_UP in found or not parts <= found:
        storage.remove(f"{folder}/{MANIFEST_NAME}")
        raise SaveFailed(
            f"{_joined(storage.url, folder)} was swept away while it was committed: a newer generation runs"
        )


def _alike(notes: Sequence[Note]) -> list[Shard]:
    for note in notes[1:]:
        differing = sorted(part for part, found in notes[0].alike.items() if note.alike.get(part) != found)
        if differing:
            raise SaveFailed(
                f"{differing[0]} differs between rank 0 and rank {note.rank}: what is each rank's own has to be "
                "declared with per_rank; what should be equal is not"
            )
    return [note.shard for note in notes if note.shard is not None]


def _blocks(regions: Iterable[Region]) -> Iterable[memoryview]:
    for region in regions:
        for at in range(0, region.data.nbytes, BLOCK_BYTES):
            yield region.data[at : at + BLOCK_BYTES]


def _note_name(rank: int) -> str:
    return f"rank-{rank:05d}.note"


def _joined(url: str, folder: str) -> str:
    return f"{url.rstrip('/')}/{folder}"
