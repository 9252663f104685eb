"""What a leader decided and from what, line by line in a bounded set of files, so that it can be decided again.

Each file begins with a chapter: the policy and the whole state, the volatile
part included. Each following line is one step: the facts that came in, and a
digest of what was decided. Replaying a file through another version of the core
shows where that one decides differently. Not for people to read; that is the
story's part. Specifications of jobs are in it: the files are their owner's only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import structlog

from evertrain.contract import wire
from evertrain.contract.launch import LauncherStatus
from evertrain.contract.version import version
from evertrain.controlplane.core import events as core_events
from evertrain.controlplane.core.commands import Decision
from evertrain.controlplane.core.contact import Contact
from evertrain.controlplane.core.events import Event
from evertrain.controlplane.core.ids import Instant, JobName, NodeName, Term
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import State
from evertrain.controlplane.store import codec
from evertrain.controlplane.store.api import Key, Kind, Revision, Snapshot

log = structlog.get_logger(__name__)

FORMAT: Final = 1
FILE_BYTES_MAX: Final = 64 << 20
FILES_MAX: Final = 4
STEPS_MAX: Final = 1_000
"""Steps of one chapter: where another core decides differently, the comparison goes on with the next chapter."""
NAME: Final = "decisions.jsonl"
"""The newest file; ``decisions.jsonl.1`` is the one before it."""
KINDS: Final[Mapping[str, type]] = {
    kind.__name__: kind
    for kind in (
        core_events.LeadershipBegan,
        core_events.NodeRegistered,
        core_events.NodeReported,
        core_events.NodeOutOfSight,
        core_events.NodeProbed,
        core_events.TimerFired,
        core_events.StoreReturned,
        core_events.JobSubmitted,
        core_events.CancelAsked,
        core_events.DrainAsked,
        core_events.UndrainAsked,
        core_events.CheckpointAsked,
        core_events.RollbackAsked,
    )
}


class RecordingError(Exception):
    """A recording cannot be read; the text says which file and line, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Steps that heartbeats carried: they change what is seen of a node, and lead to no decision."""

    node: NodeName
    launchers: tuple[LauncherStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Where a file, a leadership, or the next thousand steps begin."""

    format: int
    version: str
    policy: Policy
    cluster_id: str
    term: Term
    led_since: Instant
    ordering_since: Instant
    sequence: int
    records: tuple[Record, ...]
    contacts: Mapping[NodeName, Contact]
    wakes: Mapping[JobName, Instant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One durable record, as the store holds it."""

    kind: Kind
    name: str
    value: str
    """Base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Facts, the instant at which they were decided on, and what was decided."""

    now: Instant
    progress: tuple[Progress, ...]
    events: tuple[Event, ...]
    told: tuple[str, ...]
    digest: str
    """Of every record, command and answer of the decision."""


Line: TypeAlias = Chapter | Step


class Recorder(Protocol):
    """Takes down a leadership's steps."""

    def begin(self, state: State, policy: Policy) -> None:
        """A leadership begins with ``state``."""

    def progress(self, node: NodeName, launchers: tuple[LauncherStatus, ...]) -> None:
        """A heartbeat's steps were put into the state."""

    def step(self, before: State, events: Sequence[Event], now: Instant, decision: Decision) -> None:
        """A decision was made."""


class NoRecorder:
    """Takes nothing down."""

    def begin(self, state: State, policy: Policy) -> None:
        """See Recorder."""

    def progress(self, node: NodeName, launchers: tuple[LauncherStatus, ...]) -> None:
        """See Recorder."""

    def step(self, before: State, events: Sequence[Event], now: Instant, decision: Decision) -> None:
        """See Recorder."""


@dataclass(slots=True)
class FileRecorder:
    """Records into a folder, at most :data:`FILES_MAX` files of about :data:`FILE_BYTES_MAX` each.

    A disk that is full or gone ends the recording with one line in the log, and
    never the leadership.
    """

    folder: Path
    file_bytes_max: int = FILE_BYTES_MAX
    files_max: int = FILES_MAX
    _policy: Policy = field(default_factory=Policy)
    _progress: list[Progress] = field(default_factory=list)
    _size: int = 0
    _steps: int = 0
    _broken: bool = False

    def begin(self, state: State, policy: Policy) -> None:
        """See Recorder. Begins a new file."""
        self._policy, self._broken = policy, False
        self._progress.clear()
        self._chapter(state)

    def progress(self, node: NodeName, launchers: tuple[LauncherStatus, ...]) -> None:
        """See Recorder."""
        if not self._broken:
            self._progress.append(Progress(node=node, launchers=launchers))

    def step(self, before: State, events: Sequence[Event], now: Instant, decision: Decision) -> None:
        """See Recorder."""
        if self._steps >= STEPS_MAX or self._size > self.file_bytes_max:
            self._progress.clear()  # the state of the new chapter has it
            self._chapter(before)
        if self._broken:
            return
        self._steps += 1
        line = {
            "type": "Step",
            "now": now,
            "progress": [wire.to_dict(each) for each in self._progress],
            "events": [{"type": type(each).__name__, **wire.to_dict(each)} for each in events],
            "told": [each.text for each in decision.told],
            "digest": digest_of(decision),
        }
        self._progress.clear()
        self._write(line)

    def _chapter(self, state: State) -> None:
        self._steps = 0
        if not self._size or self._size > self.file_bytes_max:
            self._next_file()
        self._write({"type": "Chapter", **wire.to_dict(chapter_of(state, self._policy))})

    def _next_file(self) -> None:
        self._size = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for number in range(self.files_max - 1, 0, -1):
                older = self.folder / (NAME if number == 1 else f"{NAME}.{number - 1}")
                if older.exists():
                    older.replace(self.folder / f"{NAME}.{number}")
        except OSError as err:
            self._give_up(err)

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")) + "\n"
        try:
            with open(self.folder / NAME, "a", encoding="utf-8", opener=_owner_only) as file:
                file.write(text)
            self._size += len(text)
        except OSError as err:
            self._give_up(err)

    def _give_up(self, err: OSError) -> None:
        self._broken = True
        log.error("decisions are no longer recorded", folder=str(self.folder), reason=str(err))


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def digest_of(decision: Decision) -> str:
    """Tells one decision from another: all it would commit, do and answer."""
    digest = hashlib.sha256()
    for write in codec.writes_for(decision, events_max=1 << 62):
        digest.update(f"{write.key.kind.value}/{write.key.name}".encode() + b"=" + (write.value or b"-") + b"\n")
    for command in decision.commands:
        digest.update(json.dumps({"type": type(command).__name__, **wire.to_dict(command)}).encode())
    for request_id in sorted(decision.answers):
        digest.update(f"{request_id}: {wire.to_dict(decision.answers[request_id])}".encode())
    return digest.hexdigest()[:32]


def chapter_of(state: State, policy: Policy) -> Chapter:
    """The whole of ``state``, as a chapter holds it."""
    writes = codec.writes_for(
        Decision(
            state=state,
            jobs=tuple(state.jobs),
            nodes=tuple(state.nodes),
            requests=tuple(state.requests),
            incidents=tuple(state.incidents),
        ),
        events_max=1 << 62,
    )
    return Chapter(
        format=FORMAT,
        version=version(),
        policy=policy,
        cluster_id=state.cluster_id,
        term=state.term,
        led_since=state.led_since,
        ordering_since=state.ordering_since,
        sequence=state.sequence,
        records=tuple(
            Record(kind=each.key.kind, name=each.key.name, value=base64.b64encode(each.value or b"").decode())
            for each in sorted(writes, key=lambda write: (write.key.kind.value, write.key.name))
        ),
        contacts={node: state.contacts[node] for node in sorted(state.contacts)},
        wakes={job: state.wakes[job] for job in sorted(state.wakes)},
    )


def state_of(chapter: Chapter) -> State:
    """The state that a chapter began with. Raises RecordError."""
    records = {Key(each.kind, each.name): base64.b64decode(each.value) for each in chapter.records}
    cluster = codec.Cluster(cluster_id=chapter.cluster_id, created_at=0.0, format=codec.FORMAT)
    state = codec.read_state(Snapshot(revision=Revision(0), records=records), cluster)
    return state.begun(
        term=chapter.term,
        led_since=chapter.led_since,
        ordering_since=chapter.ordering_since,
        sequence=chapter.sequence,
        contacts=chapter.contacts,
        wakes=chapter.wakes,
    )


def read(path: Path) -> Iterator[Line]:
    """The lines of one file, oldest first; a line cut short by a crash ends it. Raises RecordingError."""
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, start=1):
            if not text.endswith("\n"):
                return
            try:
                yield _line(json.loads(text))
            except (ValueError, KeyError) as err:
                raise RecordingError(f"{path}:{number}: not a recording of this version's form: {err}") from err


def _line(value: dict[str, Any]) -> Line:
    kind = value.pop("type")
    if kind == "Chapter":
        chapter = wire.from_dict(Chapter, value)
        if chapter.format != FORMAT:
            raise ValueError(f"format {chapter.format}, this build reads {FORMAT}")
        return chapter
    events: tuple[Event, ...] = tuple(wire.from_dict(KINDS[each.pop("type")], each) for each in value.pop("events"))
    progress = tuple(wire.from_dict(Progress, each) for each in value.pop("progress"))
    return Step(
        now=Instant(float(value["now"])),
        progress=progress,
        events=events,
        told=tuple(value["told"]),
        digest=str(value["digest"]),
    )
