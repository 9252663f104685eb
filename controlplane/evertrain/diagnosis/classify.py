"""From captures to a verdict: read, find, join, decide. Pure: the same evidence gives the same verdict.

from evertrain.diagnosis.classify import Classifier
verdict = Classifier(shipped()).verdict([Capture(name="rank3.log", text=text)])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from evertrain.contract.secrets import redacted
from evertrain.diagnosis.drafts import Draft, group_of
from evertrain.diagnosis.evidence import Capture, Line, Observation
from evertrain.diagnosis.finding import Finder, Finding
from evertrain.diagnosis.picture import Picture
from evertrain.diagnosis.reading import read
from evertrain.diagnosis.rules import decide
from evertrain.diagnosis.table import Table
from evertrain.diagnosis.verdicts import Culprit, Quote, Verdict
from evertrain.diagnosis.vocabulary import TREATMENT, JobAction, NodeAction, Role

QUOTES_MAX: Final = 12
QUOTE_CHARS_MAX: Final = 240


@dataclass(slots=True)
class Classifier:
    """Classifies with one table of signals. May be used again and again, by one thread at a time."""

    table: Table
    _finder: Finder = field(init=False)

    def __post_init__(self) -> None:
        self._finder = Finder(self.table)

    def verdict(self, captures: Iterable[Capture], observations: Iterable[Observation] = ()) -> Verdict:
        """What broke, who has it and what to do, from all evidence at once."""
        picture = self.picture(captures, observations)
        rule, draft = decide(picture)
        return self._verdict(rule, draft, picture)

    def picture(self, captures: Iterable[Capture], observations: Iterable[Observation] = ()) -> Picture:
        """All evidence joined."""
        lines = read(captures)
        findings = self._finder.find(lines)
        seen = tuple(observations)
        for number, observation in enumerate(seen):
            if (signal := self.table.get(observation.signal)) and signal.enabled:
                line = Line(
                    origin=observation.origin,
                    at=observation.at,
                    order=len(lines) + number,
                    text=observation.text or signal.about,
                    capture="probe",
                    number=0,
                )
                findings.append(Finding(signal=signal, line=line, facts=observation.facts))
        return Picture(lines=lines, findings=tuple(findings), observations=seen)

    def _verdict(self, rule: str, draft: Draft, picture: Picture) -> Verdict:
        treatment = TREATMENT[draft.cls]
        quoted = list(draft.causes)
        followed = picture.of(Role.ROOT, Role.EITHER, Role.CONFIRMATION, Role.CASCADE)
        quoted += [finding for finding in followed if finding not in quoted]
        job_action = draft.job_action if draft.job_action is not None else treatment.job_action
        attempts_max = draft.attempts_max if draft.attempts_max is not None else treatment.attempts_max
        node_action = draft.node_action if draft.node_action is not None else treatment.node_action
        if not draft.names and node_action not in {NodeAction.NONE, NodeAction.WATCH}:
            node_action = node_action if draft.causes else NodeAction.NONE
        return Verdict(
            cls=draft.cls,
            group=group_of(draft),
            culprit=Culprit(kind=draft.kind or treatment.culprit, names=draft.names),
            confidence=draft.confidence,
            rule=rule,
            evidence=tuple(map(_quote, quoted[:QUOTES_MAX])),
            job_action=job_action,
            attempts_max=attempts_max,
            charged=treatment.charged and job_action is not JobAction.REQUEUE,
            node_action=node_action,
            node_steps=draft.node_steps if node_action is not NodeAction.NONE else "",
            why=redacted(draft.why),
            missing=draft.missing,
            version=self.table.version,
        )


def _quote(finding: Finding) -> Quote:
    text = redacted(finding.line.text.strip())
    return Quote(
        capture=finding.line.capture,
        number=finding.line.number,
        origin=finding.line.origin.named(),
        text=text if len(text) <= QUOTE_CHARS_MAX else f"{text[:QUOTE_CHARS_MAX]}…",
        count=finding.line.count,
        role=finding.signal.role,
        signal=finding.signal.id,
    )
