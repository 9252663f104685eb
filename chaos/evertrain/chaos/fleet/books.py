"""The accounts of one policy's run, kept while time passes: memory does not grow with it. Decides nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evertrain.chaos.fleet.spread import Curve, Durations, SlidingHour
from evertrain.chaos.fleet.training import Bucket, Training

CURVE_PARTS = 360
IDLE = frozenset({Bucket.SPARE, Bucket.REPAIR})
WAITING = frozenset({Bucket.WAIT_PERSON, Bucket.WAIT_NODES})
NO_CAUSE = "none"


def _floats() -> defaultdict[Any, float]:
    return defaultdict(float)


@dataclass(slots=True, kw_only=True)
class Incident:
    """The job does not run as it should, from the first fault until it runs again."""

    at_s: float
    cause: str
    kind: str
    """What the losses are summed up by: how it shows, and whether a restart cures it."""
    noticed: bool = False


@dataclass(slots=True, kw_only=True)
class Books:
    """All that is reported of a run; node-seconds, by bucket and by kind of fault."""

    nodes: int
    spares: int
    gpus_per_node: int
    length_s: float
    training: Training
    now_s: float = 0.0
    spent: defaultdict[Bucket, float] = field(default_factory=_floats)
    lost: defaultdict[tuple[str, Bucket], float] = field(default_factory=_floats)
    """Node-seconds of the job that were not productive, by the kind of the incident they are owed to."""
    interruptions: Counter[str] = field(default_factory=Counter)
    planned: Counter[str] = field(default_factory=Counter)
    detect: Durations = field(default_factory=Durations)
    recover: Durations = field(default_factory=Durations)
    degraded: Counter[str] = field(default_factory=Counter)
    """Faults that slowed the job and did not stop it."""
    touches: Counter[str] = field(default_factory=Counter)
    generations: int = 0
    spares_used_max: int = 0
    hour: SlidingHour = field(default_factory=SlidingHour)
    incident: Incident | None = None
    debtor: str = NO_CAUSE
    """The kind of the newest incident: owes what is done again."""
    curve: Curve = field(init=False)

    def __post_init__(self) -> None:
        self.curve = Curve(self.length_s, CURVE_PARTS)

    def pass_time(
        self, to_s: float, *, running: int, out: int, speed: float = 1.0, waiting: Mapping[Bucket, int] | None = None
    ) -> None:
        """Until ``to_s``: so many nodes run at ``speed``, others wait in their buckets, ``out`` are out of order."""
        length_s = to_s - self.now_s
        if length_s <= 0:
            return
        waiting = waiting or {}
        owing = self.incident.kind if self.incident else self.debtor
        for bucket, nodes in waiting.items():
            self.spent[bucket] += nodes * length_s
            self.lost[owing, bucket] += nodes * length_s
        self.spent[Bucket.REPAIR] += out * length_s
        self.spent[Bucket.SPARE] += (self.nodes + self.spares - out - running - sum(waiting.values())) * length_s
        used = self.spares - (self.nodes + self.spares - out - running - sum(waiting.values()))
        self.spares_used_max = max(self.spares_used_max, used if running else 0)
        if running:
            self._run(length_s, running, speed, owing)
        else:
            self._note(self.now_s, length_s, 0.0)
        self.now_s = to_s

    def _run(self, length_s: float, running: int, speed: float, owing: str) -> None:
        share = running / self.nodes
        for bucket, at_s, piece_s in self.training.advance(self.now_s, length_s, share * speed):
            full_s = piece_s if bucket is Bucket.SAVE else piece_s * speed
            self.spent[bucket] += running * full_s
            if bucket is Bucket.RECOMPUTE:
                self.lost[owing, bucket] += running * full_s
            if bucket is not Bucket.SAVE and speed < 1.0:
                self.spent[Bucket.SLOW] += running * (piece_s - full_s)
                self.lost["fail_slow", Bucket.SLOW] += running * (piece_s - full_s)
            self._note(at_s, piece_s, share * speed if bucket is Bucket.PRODUCTIVE else 0.0)

    def _note(self, at_s: float, length_s: float, share: float) -> None:
        self.hour.add(at_s, length_s, share)
        self.curve.add(at_s, length_s, share)

    # -- incidents --------------------------------------------------------------------

    def strike(self, *, cause: str, kind: str, planned: bool = False) -> Incident:
        """The job is interrupted now; a fault that comes while it is already down belongs to the same incident."""
        (self.planned if planned else self.interruptions)[cause] += 1
        if self.incident is None:
            self.incident = Incident(at_s=self.now_s, cause=cause, kind=kind, noticed=planned)
            self.debtor = kind
        return self.incident

    def notice(self, since_s: float | None = None) -> None:
        """What keeps the job going knows of the incident, which began when it was noted or ``since_s``."""
        incident = self.incident
        if incident is not None and not incident.noticed:
            incident.noticed = True
            self.detect.add(self.now_s - (incident.at_s if since_s is None else since_s))

    def recovered(self) -> None:
        """The job runs again."""
        if self.incident is not None:
            self.recover.add(self.now_s - self.incident.at_s)
            self.incident = None

    # -- result ---------------------------------------------------------------------------

    @property
    def accelerator_s(self) -> float:
        """All there were, the spares included."""
        return (self.nodes + self.spares) * self.gpus_per_node * self.length_s

    def ledger(self) -> dict[str, float]:
        """Accelerator-seconds by bucket. Asserts that each is in exactly one."""
        ledger = {str(bucket): self.spent[bucket] * self.gpus_per_node for bucket in Bucket}
        total = sum(ledger.values())
        assert abs(total - self.accelerator_s) <= 1e-9 * self.accelerator_s, (
            f"the ledger has {total} accelerator-seconds, there were {self.accelerator_s}"
        )
        return ledger

    def ettr(self, *, waiting: bool = True) -> float:
        """Productive time of the job's accelerators by all of it, spares not counted; or without its waiting."""
        wanted = self.nodes * self.length_s
        waited = 0.0 if waiting else sum(self.spent[bucket] for bucket in WAITING)
        return self.spent[Bucket.PRODUCTIVE] / (wanted - waited)
