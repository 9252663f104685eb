"""What happened in a simulated run, as typed observations in order; a digest of all, the text of the newest.

Observers (checkers, stories) are told each observation when it is made, so that
memory grows with what is alive and not with what has been.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from evertrain.controlplane.core.commands import Answer
from evertrain.controlplane.core.events import OperatorRequest
from evertrain.controlplane.store.api import Key, Write

LINES_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Led:
    """A coordinator was elected."""

    coordinator: str
    term: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The store applied a batch."""

    coordinator: str
    term: int
    revision: int
    digest: str
    writes: Sequence[Write]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A coordinator learned that its batch is in the store."""

    coordinator: str
    term: int
    revision: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A coordinator read all records."""

    coordinator: str
    revision: int
    records: Mapping[Key, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ordered:
    """A coordinator sent a node what is wanted of it."""

    coordinator: str
    term: int
    node: str
    jobs: tuple[tuple[str, int, str], ...]
    """Job id, generation, what is desired."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator sent a request, or sent it again."""

    request: OperatorRequest
    coordinator: str


@dataclass(frozen=True, slots=True)
class Answered:
    """An operator got an answer."""

    request_id: str
    coordinator: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class LauncherStarted:
    """A launcher process exists."""

    node: str
    job: str
    launcher_id: str


@dataclass(frozen=True, slots=True)
class LauncherEnded:
    """A launcher process is gone."""

    node: str
    job: str
    launcher_id: str
    why: str


@dataclass(frozen=True, slots=True)
class WorkersStarted:
    """Workers of a generation run on a node."""

    node: str
    job: str
    generation: int
    launcher_id: str


@dataclass(frozen=True, slots=True)
class WorkersEnded:
    """No worker of that generation runs on the node any more."""

    node: str
    job: str
    generation: int
    how: str


@dataclass(frozen=True, slots=True)
class OrderObeyed:
    """A launcher took an order."""

    node: str
    job: str
    term: int
    generation: int
    desired: str
    launcher_id: str


@dataclass(frozen=True, slots=True)
class OrdersRefused:
    """An agent took no notice of orders, because they are stale or of another cluster."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Trained:
    """A generation of a gang came to an end, or reached its end; steps from ``first`` to ``last`` were completed."""

    job: str
    generation: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Restored:
    """All workers of a generation loaded a checkpoint; ``step`` 0 and no path: a fresh start.

    With ``copied_by`` they loaded copies in memory instead, which that generation had made.
    """

    job: str
    generation: int
    path: str
    digest: str
    step: int
    copied_by: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointRefused:
    """A worker found the checkpoint it was to load damaged, and loaded nothing."""

    job: str
    generation: int
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint is whole on storage, its marker written."""

    job: str
    generation: int
    step: int
    path: str


@dataclass(frozen=True, slots=True)
class CheckpointRemoved:
    """An agent removed a checkpoint from storage, as it was told."""

    job: str
    step: int
    path: str


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """An agent began a task with a checkpoint."""

    node: str
    job: str
    id: str
    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class FaultBegan:
    """A fault was injected."""

    number: int
    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class FaultEnded:
    """It was taken back."""

    number: int
    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class Healed:
    """All faults were taken back: from here on things must come right."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the coordinator's own story, as committed."""

    term: int
    sequence: int
    kind: str
    text: str
    job: str
    node: str
    generation: int


Observation: TypeAlias = (
    Led
    | Committed
    | Acknowledged
    | Loaded
    | Ordered
    | Asked
    | Answered
    | LauncherStarted
    | LauncherEnded
    | WorkersStarted
    | WorkersEnded
    | OrderObeyed
    | OrdersRefused
    | Trained
    | Restored
    | CheckpointRefused
    | CheckpointSaved
    | CheckpointRemoved
    | TaskStarted
    | FaultBegan
    | FaultEnded
    | Healed
    | Line
)
Observer: TypeAlias = Callable[[float, Observation], None]


class History:
    """Takes observations. Equal digests mean equal histories, to the byte."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._digest = hashlib.sha256()
        self._observers: list[Observer] = []
        self.count = 0
        self.lines: deque[str] = deque(maxlen=LINES_MAX)

    def watch(self, observer: Observer) -> None:
        """Have ``observer`` told everything from now on."""
        self._observers.append(observer)

    def add(self, observation: Observation) -> None:
        """Something happened now."""
        at = self._now()
        line = f"{at:.6f} {say(observation)}"
        self._digest.update(line.encode())
        self.count += 1
        self.lines.append(line)
        for observer in self._observers:
            observer(at, observation)

    def digest(self) -> str:
        """SHA-256 over the text of all observations so far."""
        return self._digest.hexdigest()


def say(observation: Observation) -> str:
    """One line of text; two different observations have different lines."""
    if isinstance(observation, Committed):
        keys = " ".join(f"{write.key.kind.value}/{write.key.name}" for write in observation.writes)
        return (
            f"Committed {observation.coordinator} term={observation.term} revision={observation.revision} "
            f"{observation.digest} {keys}"
        )
    told = " ".join(f"{each.name}={getattr(observation, each.name)!r}" for each in fields(observation) if each.repr)
    return f"{type(observation).__name__} {told}".rstrip()
