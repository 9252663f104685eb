"""Rules for failures whose cause was said by somebody: intent, driver, hardware, node, storage, program.

Each takes the picture and gives a draft, or None. Their order is in ``rules``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from evertrain.diagnosis.drafts import Draft, listed, lowered, names_of, nodes_of, ranks_of, roots, surer
from evertrain.diagnosis.evidence import Clock, SourceKind
from evertrain.diagnosis.finding import Finding
from evertrain.diagnosis.picture import Picture, by_node, distinct_events, follows, gap_s, is_of_rank
from evertrain.diagnosis.reading import is_kernel
from evertrain.diagnosis.table import Mark
from evertrain.diagnosis.vocabulary import (
    TREATMENT,
    Confidence,
    CulpritKind,
    FailureClass,
    Group,
    JobAction,
    NodeAction,
    Role,
)

C = FailureClass
HARDWARE: Final = (C.HARDWARE_GPU, C.HARDWARE_GPU_SUSPECT, C.HARDWARE_HOST)
INTENT: Final = (C.PREEMPTION, C.WALLTIME, C.CANCELLED, C.EXTERNAL_TERMINATION)
MASS_NODES: Final = 4
"""From so many nodes with the same hardware signal on, it is one common cause, not as many broken nodes."""
HANG_BEFORE_LIMIT_S: Final = 60.0
WINDOW_S: Final = 3_600.0
"""How long before the last step a hardware error can still be what ended the job."""
EARLIER_S: Final = 2.0
"""By so much an error must be earlier than another to be its cause."""

TIERS: Final[tuple[tuple[FailureClass, ...], ...]] = (
    (C.PORT_COLLISION, C.GANG_RESTART, C.ELASTIC_INCOMPATIBLE),
    (C.HOST_OOM,),
    (C.NODE_LOST, C.NODE_SOFTWARE, C.NODE_CONFIG),
    (C.STORAGE_FULL, C.STORAGE_QUOTA, C.STORAGE_FAULT, C.CHECKPOINT_CORRUPT),
    (C.USER_CODE, C.USER_CONFIG, C.GPU_OOM, C.DATA_INPUT, C.EXTERNAL_SERVICE, C.NUMERICAL_DIVERGENCE),
    (C.FABRIC_CONFIG, C.FABRIC_LINK),
)
"""Which class is believed first where times do not decide. What is close to the machine goes before the program's."""

_BASE_MODEL: Final = re.compile(r"(?i)\.cache/|/hub/|huggingface|pretrained|base[_-]?model|torch/checkpoints|/models--")
_CHECKPOINT: Final = re.compile(
    r"(?i)checkpoint|ckpt|global_step|\biter_\d|epoch[_=-]?\d|step[_-]?\d|\.pth?\b|safetensor|distcp|optim|serialization"
    r"|pytorch|resum|restor|weights|state_dict|orbax|\bmodel\b"
)
"""Words that say of a damaged file that it is a checkpoint: only that is a reason to go back to an older one."""
_STRANGERS_OF_OLD: Final = re.compile(
    r"(?P<total>[\d.]+) GiB total capacity; .{0,60}?"
    r"(?P<free>[\d.]+) (?P<unit>[GM])iB free; (?P<own>[\d.]+) GiB reserved"
)
_STRANGERS: Final = re.compile(
    r"(?i)total capacity of (?P<total>[\d.]+) GiB of which (?P<free>[\d.]+) (?P<unit>[GM])iB is free.*"
    r"this process has (?P<own>[\d.]+) GiB"
)


def intent(picture: Picture) -> Draft | None:
    """Somebody wanted the end: a preemption, a time limit, a cancellation. Nobody is to blame."""
    others = [finding for finding in picture.of(Role.ROOT) if finding.signal.cls not in INTENT]
    wanted = roots(picture, *INTENT)
    if not wanted:
        return None
    first = min(wanted, key=lambda finding: (INTENT.index(finding.signal.cls), finding.line.order))
    if any(follows(first, other) and not is_kernel(other.line) for other in others):
        return None
    if first.signal.cls is C.CANCELLED and any(not follows(other, first) for other in others):
        return None
    waits = [finding for finding in picture.of(Role.CASCADE) if (gap_s(finding, first) or 0.0) > HANG_BEFORE_LIMIT_S]
    if first.signal.cls is C.WALLTIME and waits:
        return None
    fallout = [finding for finding in picture.of(Role.EITHER, Role.ROOT) if is_kernel(finding.line)]
    fallout = [finding for finding in fallout if finding.signal.node_action is NodeAction.RESTART]
    saved = any(follows(note, first) for note in picture.marked(Mark.SAVING))
    why = f"{lowered(first.signal.about)}; errors of ranks after that are its consequence"
    if first.signal.cls is C.WALLTIME and not saved:
        why += "; no checkpoint was seen being written in the grace time: have the job save on SIGTERM"
    if fallout:
        why += "; what the switch or GPU reported came from the abort and asks for no ticket"
    return Draft(
        cls=first.signal.cls,
        confidence=Confidence.HIGH,
        causes=[first, *fallout],
        why=why,
        names=nodes_of(picture, fallout),
        node_action=NodeAction.RESTART if fallout else None,
        node_steps="restart it before reuse" if fallout else "",
        job_action=first.signal.job_action,
        attempts_max=first.signal.attempts_max,
    )


def driver_verdict(picture: Picture) -> Draft | None:
    """The driver itself says what the GPU needs. That is better than any table."""
    said = [
        finding
        for finding in picture.of(Role.ROOT, Role.CONFIRMATION)
        if finding.signal.xid == 154 or finding.signal.id.startswith("nvml-recovery-")
    ]
    said = [finding for finding in said if not finding.facts.get("target", "needed").lower().startswith("none")]
    if not said:
        return None
    last = said[-1]
    target = last.facts.get("target", last.signal.node_steps or last.signal.about)
    more = [finding for finding in roots(picture, *HARDWARE) if finding.signal.xid != 154]
    return Draft(
        cls=C.HARDWARE_GPU,
        confidence=Confidence.HIGH,
        causes=[*more[:3], last],
        why=f"the driver asks for: {target}",
        names=_gpus(picture, [last]),
        node_action=NodeAction.DRAIN,
        node_steps=target.lower(),
    )


def hardware(picture: Picture) -> Draft | None:
    """A GPU, its links, or the host said that it is broken."""
    found = roots(picture, *HARDWARE)
    found = [finding for finding in found if finding.facts.get("severity") != "nonfatal" and finding.signal.xid != 154]
    found = [finding for finding in found if not _long_before(picture, finding)]
    if not found:
        return None
    best = min(found, key=lambda finding: (finding.signal.priority, finding.line.order))
    nodes = nodes_of(picture, [finding for finding in found if finding.signal.cls is best.signal.cls])
    witnesses = {finding.signal.id for finding in picture.of(Role.ROOT, Role.EITHER, Role.CONFIRMATION, Role.CASCADE)}
    if len(nodes) >= MASS_NODES:
        return Draft(
            cls=best.signal.cls,
            confidence=Confidence.LOW,
            causes=found[:6],
            kind=CulpritKind.INFRASTRUCTURE,
            why=f"{len(nodes)} nodes report it at once: look for one common cause (power, cooling, switch, driver)",
            node_action=NodeAction.WATCH,
            job_action=JobAction.BACKOFF,
            missing=("what these nodes have in common",),
        )
    failed = [name for attempt in picture.attempts if attempt.failed for name in attempt.nodes if name in nodes]
    why = lowered(best.signal.about)
    if len(failed) > 1:
        why += f"; {len(failed)} of the attempts told failed on {failed[0]}"
    borne_out = [] if nodes else _hardware_eithers(picture)
    names = _gpus(picture, borne_out or [finding for finding in found if finding.signal.cls is best.signal.cls])
    return Draft(
        cls=C.HARDWARE_GPU if borne_out else best.signal.cls,
        confidence=surer(len(witnesses) > 1 or len(failed) > 1),
        causes=[best, *borne_out, *(finding for finding in found if finding is not best)],
        why=why,
        names=names,
        node_action=best.signal.node_action,
        node_steps=best.signal.node_steps,
        missing=() if nodes or borne_out else ("which node it is: say it by file name, as dmesg@NODE",),
    )


def _long_before(picture: Picture, finding: Finding) -> bool:
    """Whether ranks went on taking steps long after it: whatever it is, it did not end this job."""
    at = finding.line.at
    return (
        at is not None
        and at.clock is Clock.DATE
        and any(
            note.line.at is not None and note.line.at.clock is Clock.DATE and (gap_s(finding, note) or 0.0) > WINDOW_S
            for note in picture.marked(Mark.PROGRESS)
        )
    )


def _hardware_eithers(picture: Picture) -> list[Finding]:
    """What may be a consequence, but comes from the hardware of a node that is known."""
    return [
        finding
        for finding in picture.of(Role.EITHER)
        if finding.signal.cls in HARDWARE
        and finding.facts.get("severity") != "nonfatal"
        and finding.signal.node_action in {NodeAction.DRAIN, NodeAction.RESTART, NodeAction.DIAGNOSE}
        and picture.node_of(finding)
    ]


def repeated_on_one_gpu(picture: Picture) -> Draft | None:
    """What alone would be the program's is the GPU's when it comes back in other processes on the same GPU."""
    seen: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in picture.of(Role.EITHER):
        if "pci" in finding.facts and finding.facts.get("severity") != "nonfatal":
            key = (picture.node_of(finding) or "", finding.facts["pci"], finding.signal.id)
            seen.setdefault(key, []).append(finding)
    for (_, pci, _), findings in seen.items():
        pids = {finding.facts.get("pid") for finding in findings} - {None}
        events = distinct_events(findings)
        if len(pids) >= 2 and len(events) >= 2:
            return Draft(
                cls=C.HARDWARE_GPU_SUSPECT,
                confidence=Confidence.MEDIUM,
                causes=events,
                why=f"the same error came back on GPU {pci} in {len(pids)} different processes",
                names=_gpus(picture, events[:1]),
                node_action=NodeAction.DIAGNOSE,
                node_steps="run diagnostics on this GPU (dcgmi diag -r 3, memory tests); restart the job elsewhere",
                missing=("the result of diagnostics on this GPU",),
            )
    return None


def repeated_on_one_node(picture: Picture) -> Draft | None:
    """The same failure on one node over attempts, while another node passed, is the node's."""
    failed = [attempt for attempt in picture.attempts if attempt.failed and len(attempt.nodes) == 1]
    passed = {name for attempt in picture.attempts if not attempt.failed for name in attempt.nodes}
    nodes = {attempt.nodes[0] for attempt in failed}
    same = {attempt.signal for attempt in failed}
    if len(failed) < 2 or len(nodes) != 1 or len(same) != 1 or not passed - nodes:
        return None
    node = next(iter(nodes))
    findings = [finding for finding in picture.of(Role.ROOT, Role.EITHER, Role.CASCADE) if finding.signal.id in same]
    if not findings or findings[0].signal.cls in HARDWARE:
        return None
    return Draft(
        cls=C.HARDWARE_GPU_SUSPECT,
        confidence=Confidence.MEDIUM,
        causes=findings,
        kind=CulpritKind.NODE,
        names=(node,),
        why=f"{len(failed)} attempts failed on {node} in the same way, and {listed(sorted(passed - nodes))} passed",
        node_action=NodeAction.DIAGNOSE,
        node_steps="run diagnostics before the next job",
    )


def suspected_gpu(picture: Picture) -> Draft | None:
    """A hardware signal that may be a consequence, with a failed rank as second witness and nobody else to blame."""
    if picture.of(Role.ROOT):
        return None
    found = _hardware_eithers(picture)
    witnesses = [finding for finding in picture.findings if is_of_rank(finding) and not finding.signal.mark]
    stopped = [finding for finding in picture.of(Role.EITHER) if finding.signal.cls is C.EXTERNAL_TERMINATION]
    if not found or not witnesses or any(follows(each, stop) for each in found for stop in stopped):
        return None
    return Draft(
        cls=C.HARDWARE_GPU_SUSPECT,
        confidence=Confidence.LOW,
        causes=found,
        why=f"{found[0].signal.about}; ranks failed, and nobody gave another cause",
        names=_gpus(picture, found),
        node_action=NodeAction.DIAGNOSE,
        node_steps=found[0].signal.node_steps or "run diagnostics",
        missing=("the result of diagnostics", "whether it comes back on the same GPU"),
    )


def said_cause(picture: Picture) -> Draft | None:
    """The cause that somebody said: the earliest where times tell, else what is closest to the machine."""
    tier = {cls: number for number, classes in enumerate(TIERS) for cls in classes}
    found = roots(picture, *tier)
    if not found:
        return None
    best = min(
        found,
        key=lambda each: (
            each.line.secondary,
            tier[each.signal.cls],
            not is_of_machine(each),
            each.signal.priority,
            found.index(each),
        ),
    )
    earlier = [each for each in found if (gap_s(each, best) or 0.0) > EARLIER_S and not each.line.secondary]
    if earlier:
        best = min(earlier, key=lambda each: (-(gap_s(each, best) or 0.0), tier[each.signal.cls]))
    same = [each for each in found if each.signal.cls is best.signal.cls and (gap_s(best, each) or 0.0) < 60.0]
    causes = [best, *(each for each in same if each is not best)]
    for special in (_only_there, _foreign_memory, _downloaded, _fabric_root, _doubted):
        if draft := special(picture, causes):
            return draft
    return _plain(picture, causes)


def _doubted(picture: Picture, causes: Sequence[Finding]) -> Draft | None:
    """A kernel on a GPU that failed while the driver had trouble of its own: the program is not blamed."""
    if causes[0].signal.id != "cuda-illegal-access":
        return None
    trouble = [each for each in picture.of(Role.EITHER) if each.signal.cls in HARDWARE and is_kernel(each.line)]
    if not trouble:
        return None
    return Draft(
        cls=C.HARDWARE_GPU_SUSPECT,
        confidence=Confidence.LOW,
        causes=[*trouble, *causes],
        names=_gpus(picture, trouble),
        why="a kernel on the GPU failed while its driver reported trouble; program or GPU is open",
        node_action=NodeAction.WATCH,
        missing=("the result of diagnostics on this GPU", "whether it comes back on other nodes"),
    )


def _plain(picture: Picture, causes: Sequence[Finding]) -> Draft:
    best = causes[0]
    cls = best.signal.cls
    treatment = TREATMENT[cls]
    others = picture.of(Role.CASCADE, Role.CONFIRMATION)
    confidence = surer(bool(others) or len({each.signal.id for each in causes}) > 1)
    alone = best.signal.id == "cuda-illegal-access" and not any(is_kernel(line) for line in picture.lines)
    if cls is C.NUMERICAL_DIVERGENCE or alone:
        confidence = Confidence.LOW
    if best.signal.id == "ckpt-partial":
        confidence = Confidence.MEDIUM
    names = _culprits(picture, causes)
    why = lowered(best.signal.about)
    if exception := best.facts.get("exception"):
        why += f" ({exception})"
    if best.line.where:
        why += f", at {best.line.where}"
    if cls in {C.HOST_OOM, C.GPU_OOM} and (note := picture.doing(_victim(picture, causes), best)):
        why += f"; last seen: {note.line.text.strip()[:80]}"
    if others and cls is not C.NUMERICAL_DIVERGENCE:
        why += "; the others only waited or lost their peer"
    missing: tuple[str, ...] = ()
    if cls is C.NUMERICAL_DIVERGENCE:
        missing = ("the same steps on other nodes", "a memory and compute test of the GPUs of that step")
    elif best.signal.id == "ckpt-partial":
        missing = ("whether the other nodes see the file: a checkpoint on one node's disk looks the same",)
    elif alone:
        missing = ("the kernel log of that node: only that tells a program's error from a GPU's",)
    elif treatment.group is Group.NODE and not nodes_of(picture, causes):
        missing = ("which node it is",)
    taken_out = best.signal.node_action in {NodeAction.DRAIN, NodeAction.DIAGNOSE}
    return Draft(
        cls=cls,
        confidence=confidence,
        causes=causes,
        why=why,
        kind=_kind(best, names),
        names=names,
        job_action=best.signal.job_action or (JobAction.RETRY_EXCLUDE if taken_out else None),
        attempts_max=best.signal.attempts_max,
        node_action=best.signal.node_action,
        node_steps=best.signal.node_steps,
        missing=missing,
    )


def _kind(best: Finding, names: Sequence[str]) -> CulpritKind:
    treatment = TREATMENT[best.signal.cls]
    if treatment.group is Group.NODE:
        return treatment.culprit
    if best.signal.blames is CulpritKind.NODE and treatment.group is Group.STORAGE:
        return CulpritKind.NODE
    if treatment.culprit is CulpritKind.JOB and names and names[0].startswith("rank"):
        return CulpritKind.RANK
    return treatment.culprit


def _victim(picture: Picture, causes: Sequence[Finding]) -> int | None:
    """The rank of the process that was killed, by its pid where a launcher names both."""
    if causes[0].line.origin.rank is not None:
        return causes[0].line.origin.rank
    for pid in {finding.facts["pid"] for finding in causes if "pid" in finding.facts}:
        for line in picture.lines:
            if re.search(rf"\bpid\W{{0,3}}{pid}\b", line.text) and (match := _LOCAL.search(line.text)):
                return int(match["rank"])
    tasks = (re.search(r"\btask (\d+): Out Of Memory", finding.line.text) for finding in causes)
    return next((int(match[1]) for match in tasks if match), None)


_LOCAL: Final = re.compile(r"\b(?:local_)?rank\s*:?\s*(?P<rank>\d+)")


def _culprits(picture: Picture, causes: Sequence[Finding]) -> tuple[str, ...]:
    """Ranks or nodes to name; nobody when most of the job says the same."""
    treatment = TREATMENT[causes[0].signal.cls]
    if treatment.group in {Group.NODE} or causes[0].signal.blames is CulpritKind.NODE:
        return names_of(picture, causes)
    if causes[0].signal.cls is C.HOST_OOM and (rank := _victim(picture, causes)) is not None:
        return (f"rank {rank}",)
    named = ranks_of(causes)
    heard = len(picture.ranks)
    if len(named) > 1 and 2 * len(named) > heard:
        return ()
    return named[:1] if causes[0].signal.cls is C.USER_CODE else named[:4]


def _only_there(picture: Picture, causes: Sequence[Finding]) -> Draft | None:
    """A file or module that is missing on one node only, while ranks elsewhere work, is the node's."""
    best = causes[0]
    if best.signal.id not in {"enoent-data", "py-import", "glibc", "eacces", "ckpt-partial", "cuda-image"}:
        return None
    nodes = by_node(picture, causes)
    working = {note.line.origin.rank for note in picture.marked(Mark.PROGRESS)} - {None}
    hurt = {finding.line.origin.rank for finding in causes} - {None}
    if len(nodes) != 1 or not working - hurt or sum(map(len, nodes.values())) != len(causes):
        return None
    node = next(iter(nodes))
    if any(picture.nodes_of_ranks.get(rank) == node for rank in working - hurt if rank is not None):
        return None
    return Draft(
        cls=C.NODE_CONFIG,
        confidence=Confidence.MEDIUM,
        causes=causes,
        kind=CulpritKind.NODE,
        names=(node,),
        why=f"it is missing on {node} only; ranks elsewhere read and train",
        job_action=JobAction.RETRY_EXCLUDE,
        attempts_max=2,
        node_action=NodeAction.FIX,
        node_steps="look at its mounts and its image",
    )


def _foreign_memory(_picture: Picture, causes: Sequence[Finding]) -> Draft | None:
    """GPU memory that neither this process nor anybody free has: a stranger on that GPU."""
    text = causes[0].line.text
    if causes[0].signal.cls is not C.GPU_OOM or not (
        match := _STRANGERS.search(text) or _STRANGERS_OF_OLD.search(text)
    ):
        return None
    free_gib = float(match["free"]) / (1024.0 if match["unit"] == "M" else 1.0)
    foreign_gib = float(match["total"]) - free_gib - float(match["own"])
    if foreign_gib < 0.25 * float(match["total"]):
        return None
    return Draft(
        cls=C.NODE_SOFTWARE,
        confidence=Confidence.MEDIUM,
        causes=causes,
        names=names_of(_picture, causes),
        why=f"{foreign_gib:.0f} GiB of the GPU are held by a process that is not this one",
        job_action=JobAction.RETRY_EXCLUDE,
        node_action=NodeAction.FIX,
        node_steps="end the process that holds GPU memory",
    )


def _downloaded(picture: Picture, causes: Sequence[Finding]) -> Draft | None:
    """A damaged file that was downloaded is no checkpoint of this job: rolling back would not help."""
    best = causes[0]
    if best.signal.cls is not C.CHECKPOINT_CORRUPT:
        return None
    read = [
        note
        for note in picture.marked(Mark.READING, Mark.BUSY)
        if note.line.capture == best.line.capture and note.line.origin == best.line.origin
    ]
    near = min(read, key=lambda note: abs(note.line.order - best.line.order), default=None)
    path = best.facts.get("path") or (near.facts.get("path", "") if near else "")
    about = " ".join([best.line.text, best.line.where, path, near.line.text if near else ""])
    if not _CHECKPOINT.search(about):
        return Draft(
            cls=C.DATA_INPUT,
            confidence=Confidence.LOW,
            causes=causes,
            names=ranks_of(causes)[:4],
            why="a file that was read is damaged, and nothing says that it is a checkpoint",
            job_action=JobAction.STOP,
            attempts_max=1,
            missing=("which file it was",),
        )
    if not _BASE_MODEL.search(path):
        return None
    return Draft(
        cls=C.DATA_INPUT,
        confidence=Confidence.MEDIUM,
        causes=causes,
        why=f"{path} was downloaded and is damaged: download it again; no checkpoint of this job is bad",
        job_action=JobAction.STOP,
        attempts_max=0,
    )


def _fabric_root(picture: Picture, causes: Sequence[Finding]) -> Draft | None:
    """A network error that was said plainly: which end, and whether the job had ever run."""
    best = causes[0]
    if best.signal.cls is not C.FABRIC_LINK:
        return None
    names = names_of(picture, causes)
    return Draft(
        cls=C.FABRIC_LINK,
        confidence=surer(len(picture.of(Role.EITHER, Role.CASCADE)) > 0),
        causes=[*causes, *(each for each in picture.of(Role.EITHER) if each.signal.cls is C.FABRIC_LINK)],
        why=f"{lowered(best.signal.about)} on {listed(names, 'one end')}",
        names=names,
        node_action=best.signal.node_action,
        node_steps=best.signal.node_steps,
        missing=("error counters of that port", "whether it comes back at the same end"),
    )


def _gpus(picture: Picture, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Nodes, each with the GPU in question where it is known; ranks where no node is."""
    names: dict[str, None] = {}
    for finding in findings:
        node = picture.node_of(finding)
        if node and (pci := finding.facts.get("pci")) and finding.signal.blames is CulpritKind.GPU:
            names[f"{node}/{pci}"] = None
        elif node and not any(name.startswith(f"{node}/") for name in names):
            names[node] = None
    known = {name.partition("/")[0] for name in names if "/" in name}
    return tuple(name for name in names if "/" in name or name not in known) or ranks_of(findings)


def is_of_machine(finding: Finding) -> bool:
    """Whether a kernel or an agent said it: they see what ranks only suffer."""
    return is_kernel(finding.line) or finding.line.origin.kind is SourceKind.AGENT


def is_launcher(finding: Finding) -> bool:
    """Whether a launcher or agent said it, not a rank."""
    return finding.line.origin.kind in {SourceKind.LAUNCHER, SourceKind.AGENT, SourceKind.SCHEDULER}
