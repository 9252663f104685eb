"""The saver: a process beside each training process that turns its copies into checkpoints. Knows nothing of torch.

``python -m evertrain.checkpoint.saver FD [FOLDER]``, with a socket to its
training process as descriptor FD; FOLDER is deleted at the end. It digests a copy (that seals it: it can be restored
from when the training process is dead), writes this rank's shard, and on rank
0 commits. When its training process dies it finishes what it has, tells the
launcher itself, and ends.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from evertrain.checkpoint import retention
from evertrain.checkpoint.carrying import NotCarried, hand_over
from evertrain.checkpoint.held import held_in, mapped, write_seal
from evertrain.checkpoint.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    CheckpointManifest,
    Entry,
    RankRecord,
    VerificationFailed,
    decode_manifest,
    padded,
)
from evertrain.checkpoint.request import (
    Abandon,
    CopyLayout,
    Ended,
    Mirror,
    Mirrored,
    Persist,
    Read,
    Released,
    Save,
    Seal,
    Sealed,
)
from evertrain.checkpoint.storage import open_storage
from evertrain.checkpoint.storage.api import Missing, Storage, StorageError
from evertrain.checkpoint.writing import (
    Committed,
    Note,
    Region,
    SaveFailed,
    commit,
    committed_as,
    digests_of,
    give_up,
    is_given_up,
    leave_note,
    write_shard,
)
from evertrain.contract import environ, wire
from evertrain.contract.beacon import CheckpointCommitted, Hello
from evertrain.contract.shared_memory import CopiesFolder

NICE: Final = 10
POLL_S: Final = 0.05
LINGER_S: Final = 600.0
"""After its training process is gone, a saver has so long for what it was given."""
QUEUE_MAX: Final = 4

Reply = Sealed | Mirrored | Released | Ended


class Saver:
    """Works on one save after the other; a storage that hangs holds up that thread alone."""

    def __init__(self, reply: Callable[[Reply], None]) -> None:
        self._reply = reply
        self._layouts: dict[str, CopyLayout] = {}
        self._last: Committed | None = None
        self._carriers: list[threading.Thread] = []

    def save(self, request: Save) -> None:
        """Seal the copy and persist it; replies tell of each step. Raises nothing that a storage can cause."""
        began, how = time.monotonic(), request.persist
        committed, failure, carrying = None, "", None
        try:
            layout = self._layout(request.layout)
            view = mapped(Path(request.copy), layout.bytes)
            entries = self._seal(request, layout, view, began)
            carrying = self._begin_to_carry(request)
            if how is not None:
                committed = self._persist(request, how, _regions(layout, entries, view))
        except (SaveFailed, StorageError) as err:
            failure = str(err)
        except OSError as err:
            failure = f"rank {request.record.rank}: shared memory: {err.strerror or err}"
            self._excuse(request, failure)
        if how is not None and (how.draft is not None or how.watches):
            took_s = time.monotonic() - began
            self._reply(Ended(step=request.step, committed=committed, failure=failure, persist_s=took_s))
        if carrying is not None:
            carrying.release()
        else:
            self._give_back(request, "it was not sealed")

    def _begin_to_carry(self, request: Save) -> threading.Semaphore | None:
        """Have the copy carried to its keeper, beside what else is done with it. It is given back by who ends last."""
        mirror = request.mirror
        if mirror is None:
            return None
        persisted = threading.Semaphore(0)

        def carry() -> None:
            trouble = _carried(request, mirror)
            self._reply(Mirrored(step=request.step, trouble=trouble))
            persisted.acquire()
            self._reply(Released(copy=request.copy))

        self._carriers = [each for each in self._carriers if each.is_alive()]
        self._carriers.append(threading.Thread(target=carry, name="carrier", daemon=True))
        self._carriers[-1].start()
        return persisted

    def _give_back(self, request: Save, trouble: str) -> None:
        if request.mirror is not None:
            self._reply(Mirrored(step=request.step, trouble=trouble))
        self._reply(Released(copy=request.copy))

    def finish_carrying(self, within_s: float) -> None:
        """Wait for copies that are on their way to other nodes."""
        until = time.monotonic() + within_s
        for each in self._carriers:
            each.join(max(0.0, until - time.monotonic()))

    def _seal(self, request: Save, layout: CopyLayout, view: memoryview, began: float) -> list[Entry]:
        entries = _entries(view, layout, request.record.hash)
        record = replace(request.record, entries=tuple(entries), bytes=layout.bytes)
        seal = Seal(record=record, world_size=request.world_size)
        write_seal(Path(request.copy), json.dumps(wire.to_dict(seal)).encode())
        self._reply(Sealed(step=request.step, copy=request.copy, seal_s=time.monotonic() - began))
        return entries

    def _excuse(self, request: Save, failure: str) -> None:
        if request.persist is not None:
            with suppress(StorageError):
                note = Note(rank=request.record.rank, failure=failure)
                leave_note(open_storage(request.persist.root), request.persist.folder, note)

    def abandon(self, request: Abandon) -> None:
        """Tell the committer not to wait; on its own rank, whoever watches for the commit.

        The saver before may have written its part, or committed, and died before it could tell: then that stands.
        """
        with suppress(StorageError):
            storage = open_storage(request.root)
            with suppress(Missing):
                if MANIFEST_NAME in storage.list(request.folder):
                    return
            if request.rank == 0:
                give_up(storage, request.folder)
                return
            note = Note(rank=request.rank, failure=f"rank {request.rank}: {request.reason}")
            leave_note(storage, request.folder, note)

    def _persist(self, request: Save, how: Persist, regions: list[Region]) -> Committed | None:
        storage, rank = open_storage(how.root), request.record.rank
        try:
            shard = write_shard(storage, how.folder, _stored(request), regions)
            note = Note(rank=rank, shard=shard, alike=request.alike)
        except StorageError as err:
            note = Note(rank=rank, failure=f"rank {rank}: {err}")
        leave_note(storage, how.folder, note)
        return self._end(storage, how)

    def _end(self, storage: Storage, how: Persist) -> Committed | None:
        if how.draft is not None:
            draft, parent = how.draft, _manifest_at(storage, how.parent)
            if self._last is not None:
                # The training process did not know yet how the save before would end.
                draft = replace(draft, parent_path=self._last.path, parent_digest=self._last.digest)
                parent = _manifest_at(storage, self._last.path.rpartition("/")[2])
            try:
                committed = commit(storage, how.folder, draft, deadline_s=how.deadline_s, parent=parent)
            except SaveFailed:
                with suppress(StorageError):
                    give_up(storage, how.folder)
                raise
            self._last = committed
            # All ranks have written this one, so nobody writes at an earlier one any more.
            with suppress(StorageError):
                retention.sweep_before(storage, draft.name)
            if how.keep:
                self._retain(storage, how)
            return committed
        return _await_commit(storage, how) if how.watches else None

    def _retain(self, storage: Storage, how: Persist) -> None:
        """Old ones that cannot be deleted are no reason to call the save a failure: the next one tries again."""
        assert how.draft is not None, "only the committer removes"
        with suppress(StorageError):
            old = retention.expired(
                retention.complete(storage),
                keep=how.keep,
                generation=how.draft.generation,
                restored_step=how.restored_step,
            )
            retention.remove(storage, old)

    def _layout(self, path: str) -> CopyLayout:
        if path not in self._layouts:
            self._layouts = {path: wire.from_dict(CopyLayout, json.loads(Path(path).read_bytes()))}
        return self._layouts[path]


def _carried(request: Save, mirror: Mirror) -> str:
    """Hand the sealed copy to its keeper; what went wrong, or nothing."""
    path = Path(request.copy)
    held = next((each for each in held_in(path.parent, path.name, job=request.record.job)), None)
    if held is None or held.moment.step != request.step:
        return "it is not there any more"
    try:
        hand_over(held, mirror.door, keep_step=mirror.keep_step)
    except (NotCarried, OSError) as err:
        return str(err)
    return ""


def _stored(request: Save) -> RankRecord:
    """The record for storage: what all ranks hold alike is in that of rank 0 alone."""
    record = request.record
    if record.rank == 0:
        return record
    return replace(record, values={part: text for part, text in record.values.items() if part not in request.alike})


def _regions(layout: CopyLayout, entries: list[Entry], view: memoryview) -> list[Region]:
    """What this rank writes to storage."""
    mine = [entries[at] for at in layout.written]
    return [Region(entry=entry, data=view[entry.start : entry.start + entry.padded]) for entry in mine]


def _entries(view: memoryview, layout: CopyLayout, hash_name: str) -> list[Entry]:
    return [
        Entry(
            name=piece.name,
            dtype=piece.dtype,
            shape=piece.shape,
            offsets=piece.offsets,
            sizes=piece.sizes,
            start=piece.start,
            bytes=piece.bytes,
            digests=digests_of(view[piece.start : piece.start + padded(piece.bytes)], hash_name=hash_name),
        )
        for piece in layout.pieces
    ]


def _await_commit(storage: Storage, how: Persist) -> Committed | None:
    """What the committer committed, for whoever bears witness; None: it gave up, or has not within the deadline."""
    until = time.monotonic() + how.deadline_s
    while time.monotonic() < until:
        with suppress(Missing):
            data = storage.read(f"{how.folder}/{MANIFEST_NAME}", bytes_max=MANIFEST_BYTES_MAX)
            path = f"{storage.url.rstrip('/')}/{how.folder}"
            return committed_as(decode_manifest(data), data, path=path)
        if is_given_up(storage, how.folder):
            raise SaveFailed("rank 0 gave it up; its log says why")
        time.sleep(POLL_S)
    return None


def _manifest_at(storage: Storage, folder: str) -> CheckpointManifest | None:
    if not folder:
        return None
    try:
        return decode_manifest(storage.read(f"{folder}/{MANIFEST_NAME}", bytes_max=MANIFEST_BYTES_MAX))
    except (StorageError, VerificationFailed, ValueError):
        return None  # it only serves a comparison


class Link:
    """The socket to the training process; and, when that is gone, the launcher's beacon."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._decoder = wire.Decoder(Read, Abandon)
        self._lock = threading.Lock()
        self._alone = False

    def requests(self) -> list[Read | Abandon] | None:
        """The next requests; None: the training process is gone."""
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            self._alone = True
            return None
        return list(self._decoder.feed(data))

    def reply(self, message: Reply) -> None:
        """Send ``message`` to whoever is left to hear it."""
        with self._lock:
            if not self._alone:
                try:
                    self._socket.sendall(wire.encode(message))
                except ConnectionError:
                    self._alone = True
                else:
                    return
        if isinstance(message, Ended) and message.committed is not None:
            _tell_launcher(message, message.committed)


def _tell_launcher(ended: Ended, committed: Committed) -> None:
    path = os.environ.get(environ.BEACON, "")
    if not path:
        return
    generation, rank = int(os.environ.get(environ.GENERATION, "0")), int(os.environ.get("RANK", "0"))
    told = CheckpointCommitted(
        step=ended.step,
        path=committed.path,
        digest=committed.digest,
        bytes_total=committed.bytes_total,
        samples=committed.samples,
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        save_s=ended.persist_s,
    )
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as beacon:
        beacon.settimeout(5.0)
        beacon.connect(path)
        beacon.sendall(wire.encode(Hello(rank=rank, pid=os.getpid(), generation=generation)) + wire.encode(told))


class Work:
    """The thread that saves, and what waits for it."""

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self._waiting: list[Save | Abandon] = []
        self._changed = threading.Condition()
        self._busy = False
        self._thread = threading.Thread(target=self._run, name="saves", daemon=True)
        self._thread.start()

    def give(self, request: Save | Abandon) -> None:
        """Queue it. More than :data:`QUEUE_MAX` never wait: a process has two copies."""
        with self._changed:
            assert len(self._waiting) < QUEUE_MAX, "a training process waits until a copy is released"
            self._waiting.append(request)
            self._changed.notify_all()

    def finish(self, within_s: float) -> bool:
        """Wait until nothing is left to do; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, within_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                request, self._busy = self._waiting.pop(0), True
            try:
                if isinstance(request, Save):
                    self._saver.save(request)
                else:
                    self._saver.abandon(request)
            except BaseException:  # a bug: the training process must see that this process ends, and not wait for it
                traceback.print_exc()
                os._exit(os.EX_SOFTWARE)
            with self._changed:
                self._busy = False
                self._changed.notify_all()


def main() -> None:
    """Entry point."""
    with suppress(OSError):
        os.nice(NICE)
    link, own = Link(int(sys.argv[1])), [CopiesFolder(Path(name)) for name in sys.argv[2:]]
    saver = Saver(link.reply)
    work = Work(saver)
    while (requests := link.requests()) is not None:
        for request in requests:
            if isinstance(request, Read):
                path = Path(request.path)
                save = wire.from_dict(Save, json.loads(path.read_bytes()))
                path.unlink()
                work.give(save)
            else:
                work.give(request)
    work.finish(LINGER_S)
    saver.finish_carrying(LINGER_S)
    for folder in own:
        folder.close(remove=True)
    os._exit(0)  # a thread that hangs in a storage must not keep this process


if __name__ == "__main__":
    main()
