"""Rules for failures where nobody said the cause: who did not come, who was elsewhere, who stands still.

Only asked when ``causes`` found nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from evertrain.diagnosis.causes import is_launcher
from evertrain.diagnosis.drafts import Draft, listed, lowered, names_of, nodes_of, ranks_of, survived
from evertrain.diagnosis.finding import Finding
from evertrain.diagnosis.picture import Picture, Work, follows, gap_s
from evertrain.diagnosis.table import Mark
from evertrain.diagnosis.vocabulary import Confidence, CulpritKind, FailureClass, Group, JobAction, NodeAction, Role

C = FailureClass
SAME_SIZE: Final = frozenset(
    {"ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BARRIER", "COALESCED"}
)
"""Collectives in which every rank gives as much as the others."""
SILENCE_S: Final = 60.0
STORE: Final = frozenset({"c10d-uid-broadcast", "rdzv-missing-clients", "c10d-connect-timeout"})


def stopped_from_outside(picture: Picture) -> Draft | None:
    """A launcher or the first of all ranks was told to end, and nothing had failed before."""
    told = [each for each in picture.of(Role.EITHER) if each.signal.cls in {C.EXTERNAL_TERMINATION, C.CANCELLED}]
    failed = [
        each
        for each in picture.of(Role.EITHER, Role.CASCADE)
        if each.signal.cls not in {C.EXTERNAL_TERMINATION, C.CANCELLED, C.RENDEZVOUS, C.KILLED}
    ]
    ended = [each for each in picture.of(Role.TEARDOWN) if each.signal.id == "proc-exit-code"]
    if not told or (ended and not any(is_launcher(each) for each in told)):
        return None
    first = next((each for each in told if is_launcher(each)), told[0])
    if any(not follows(each, first) for each in failed) and not (is_launcher(first) and not failed):
        return None
    closed = [each for each in picture.of(Role.CASCADE) if each.signal.cls is C.RENDEZVOUS]
    where = nodes_of(picture, [first])
    if closed:
        return Draft(
            cls=C.RENDEZVOUS,
            group=Group.TERMINATION,
            confidence=Confidence.MEDIUM,
            causes=[first, *closed],
            kind=CulpritKind.INFRASTRUCTURE,
            names=where,
            why=f"{listed(where, 'one agent')} was told to end and closed the meeting on its way out; "
            "the others cannot join it again and need a new one",
            missing=("who sent the signal",),
        )
    return Draft(
        cls=first.signal.cls,
        confidence=Confidence.MEDIUM if is_launcher(first) or len(told) > 1 else Confidence.LOW,
        causes=told,
        names=where,
        why=f"{lowered(first.signal.about)}, and nothing had failed before",
        missing=() if first.signal.cls is C.CANCELLED else ("who sent the signal: scheduler, operator, autoscaler",),
    )


def fabric(picture: Picture) -> Draft | None:
    """Transfers failed between peers: the set-up when they never worked, a link when they did."""
    found = [
        each for each in picture.of(Role.EITHER) if each.signal.cls is C.FABRIC_LINK and not survived(picture, each)
    ]
    if not found:
        return None
    peers = sorted({each.facts["peer"] for each in found if "peer" in each.facts})
    here = names_of(picture, found)
    hcas = sorted({each.facts["hca"] for each in found if "hca" in each.facts})
    between = f"between {listed(here, 'this end')}{f' ({listed(hcas)})' if hcas else ''} and {listed(peers, 'a peer')}"
    if picture.ran_long is False:
        return Draft(
            cls=C.FABRIC_CONFIG,
            confidence=Confidence.MEDIUM,
            causes=found,
            why=f"transfers {between} failed from the start on: addresses, GID index or routes are wrong",
            missing=("whether these two ever reached each other",),
        )
    return Draft(
        cls=C.FABRIC_LINK,
        confidence=Confidence.MEDIUM if picture.ran_long else Confidence.LOW,
        causes=found,
        kind=CulpritKind.INFRASTRUCTURE,
        names=(*here, *(f"peer {peer}" for peer in peers))[:4],
        why=f"transfers {between} failed in the middle of a run; which end is at fault is not known yet",
        node_action=NodeAction.WATCH,
        node_steps="look at both ends; take out the one that fails again",
        missing=("whether the peer's process had died before", "port counters of both ends"),
    )


def unclear_error(picture: Picture) -> Draft | None:
    """A process ended with an error that can be cause or consequence. Said with low confidence, never at a node."""
    found = [
        each
        for each in picture.of(Role.EITHER)
        if each.signal.cls not in {C.EXTERNAL_TERMINATION, C.FABRIC_LINK} and each.facts.get("severity") != "nonfatal"
    ]
    if not found:
        return None
    first = min(found, key=lambda each: (each.line.secondary, each.signal.priority > 90, found.index(each)))
    cls = first.signal.cls
    if cls in {C.HARDWARE_GPU, C.HARDWARE_GPU_SUSPECT, C.HARDWARE_HOST}:
        cls = C.SOFTWARE_TRANSIENT
    if first.signal.id == "ckpt-empty" and not _reads_checkpoint(picture, first):
        cls = C.UNKNOWN
    if first.signal.id == "py-exception-other" and not _INFRASTRUCTURE.search(first.line.text):
        cls = C.USER_CODE
    names = ranks_of(found)[:1] if len(ranks_of(found)) <= 1 or 2 * len(ranks_of(found)) <= len(picture.ranks) else ()
    missing = ["the kernel log of that node around that time", "whether it comes back on other nodes"]
    why = lowered(first.signal.about)
    if cls is C.KILLED:
        why = "killed by SIGKILL, sender unknown; most often the host ran out of memory"
        missing = [
            "the kernel log (an OOM kill would stand there)",
            "memory.events of the cgroup",
            "events of the scheduler",
        ]
        if note := picture.doing(first.line.origin.rank, first):
            why += f"; last seen: {note.line.text.strip()[:80]}"
    return Draft(
        cls=cls,
        confidence=Confidence.LOW,
        causes=found[:6],
        kind=CulpritKind.RANK if names else CulpritKind.UNKNOWN,
        names=names or _table_rank(first),
        why=why,
        job_action=JobAction.RETRY if cls is C.UNKNOWN else first.signal.job_action,
        attempts_max=1 if cls is C.UNKNOWN else first.signal.attempts_max,
        node_action=NodeAction.WATCH
        if cls in {C.SOFTWARE_TRANSIENT, C.CRASH_NATIVE, C.NODE_SOFTWARE}
        else NodeAction.NONE,
        missing=tuple(missing),
    )


_INFRASTRUCTURE: Final = re.compile(
    r"(?i)cuda|nccl|gloo|driver|device|gpu|connect|socket|network|time(?:d )?out|host|node|resource|memory|storage|disk"
    r"|i/o|service|server|worker|actor|process|unavailable|aborted|internal"
)
"""Words of machines and services: an unknown error that has one of them is not taken for the program's."""


def different_collectives(picture: Picture) -> Draft | None:
    """Ranks waited in the same place for different things: the program took different ways on them."""
    works = [work for work in picture.works if work.seq is not None and work.op and work.rank is not None]
    for seq, _ in Counter(work.seq for work in works).most_common():
        same = [work for work in works if work.seq == seq]
        forms = Counter(_form(work) for work in same)
        if len(forms) < 2:
            continue
        common, votes = forms.most_common(1)[0]
        if picture.has_many_groups and (len({work.op for work in same}) > 1 or 2 * votes <= len(same)):
            continue  # equal numbers of different groups are no meeting place
        odd = [work for work in same if _form(work) != common] if 2 * votes > len(same) else []
        rest = [work for work in same if work not in odd]
        who = listed([f"rank {work.rank}" for work in odd], "the ranks")
        return Draft(
            cls=C.USER_CODE,
            confidence=Confidence.HIGH,
            causes=[work.finding for work in (*odd, *rest)],
            kind=CulpritKind.RANK if odd else CulpritKind.JOB,
            names=tuple(f"rank {work.rank}" for work in odd),
            why=f"at collective {seq} {who} called {_said(odd or same)}, the others {_said(rest)}",
            attempts_max=0,
        )
    return None


def elsewhere(picture: Picture) -> Draft | None:
    """Some ranks wait in a collective while another is seen doing something else."""
    waiting = {work.rank for work in picture.works} | {
        each.line.origin.rank for each in picture.findings if each.signal.id in STORE
    }
    if not waiting:
        return None
    for rank in picture.ranks:
        if rank in waiting:
            continue
        note = picture.doing(rank)
        mark = note.signal.mark if note else None
        ended = [each for each in picture.marked(Mark.DATA_END) if each.line.origin.rank == rank]
        if ended:
            return _elsewhere(
                C.USER_CODE, ended, rank, "reached the end of its data while the others went on: uneven data", picture
            )
        if note and mark in {Mark.BUSY, Mark.READING} and rank == 0 and _is_start(picture):
            return _elsewhere(
                C.USER_CONFIG,
                [note],
                rank,
                "was still preparing data or loading when the others' first wait ran out: "
                "do it once before training, or raise the time limit of the process group",
                picture,
            )
    return None


def _elsewhere(cls: FailureClass, notes: Sequence[Finding], rank: int, what: str, picture: Picture) -> Draft:
    waiting = [work.finding for work in picture.works]
    waiting += [each for each in picture.findings if each.signal.id in STORE]
    return Draft(
        cls=cls,
        confidence=Confidence.MEDIUM,
        causes=[*notes, *waiting],
        kind=CulpritKind.RANK,
        names=(f"rank {rank}",),
        why=f"rank {rank} {what}",
        job_action=JobAction.STOP,
        attempts_max=0,
    )


def announced_stall(picture: Picture) -> Draft | None:
    """Somebody says that nothing goes on, or everybody's last word is old while an agent finds them alive."""
    stalled = picture.marked(Mark.STALLED)
    progress = picture.marked(Mark.PROGRESS)
    alive = picture.marked(Mark.ALIVE)
    late = [each for each in alive if _silent_before(progress[-50:], each)]
    if not stalled and not late:
        return None
    refuted = _moved_and_failed_again(picture)
    if stalled and (not progress or re.search(r"(?i)\bfirst\b|\binit", stalled[0].line.text)):
        return Draft(
            cls=C.HANG_INIT,
            confidence=Confidence.LOW,
            causes=[*stalled, *picture.of(Role.CASCADE, Role.EITHER)],
            why="the job stands still at its start" + (f"; {refuted}" if refuted else ""),
            missing=("stacks of all ranks", "the flight recorder's dumps", "pairwise tests of the network"),
        )
    steps = set(picture.steps.values())
    last = progress[-1] if progress else (late or stalled)[0]
    where = f" at step {max(steps)}, all ranks heard the same" if len(steps) == 1 and len(picture.steps) > 1 else ""
    behind = [rank for rank, step in picture.steps.items() if step < max(steps)] if len(steps) > 1 else []
    return Draft(
        cls=C.HANG_SILENT,
        confidence=Confidence.LOW,
        causes=[last, *stalled, *late],
        kind=CulpritKind.RANK if 0 < len(behind) <= 4 else CulpritKind.UNKNOWN,
        names=tuple(f"rank {rank}" for rank in behind) if len(behind) <= 4 else (),
        why=f"stalled{where}: no error, no sign of hardware, processes alive; a collective or a library is blocked"
        + (f"; {refuted}" if refuted else ""),
        missing=("stacks of all ranks", "the flight recorder's dumps or NCCL RAS"),
    )


def _silent_before(progress: Sequence[Finding], alive: Finding) -> bool:
    """Whether all progress whose time can be compared is old when the agent still finds the workers alive."""
    gaps = [gap for note in progress if (gap := gap_s(note, alive)) is not None]
    return bool(gaps) and min(gaps) > SILENCE_S


def _moved_and_failed_again(picture: Picture) -> str:
    """In words, which nodes are cleared because the job failed the same without them."""
    history = [attempt for attempt in picture.attempts if attempt.failed and len(attempt.nodes) > 1]
    if len(history) < 2:
        return ""
    cleared = sorted(set(history[0].nodes) - set(history[-1].nodes))
    if not cleared:
        return ""
    return f"it failed the same without {listed(cleared)}: nothing speaks against them any more, give them back"


def waits(picture: Picture) -> Draft | None:
    """Ranks waited in vain, and nothing tells for whom but how far each had come."""
    works = picture.works
    stuck = [each for each in picture.of(Role.CASCADE) if each.signal.cls is C.HANG_DESYNC]
    if not works and not stuck:
        return None
    named = [each for each in picture.findings if each.signal.id == "fr-missing-rank"]
    missing = tuple(f"rank {number}" for each in named for number in re.findall(r"\d+", each.facts.get("missing", "")))
    behind = _behind(works)
    silent = [rank for rank in picture.ranks if works and rank not in {work.rank for work in works}]
    early = bool(works) and all(work.is_early for work in works) and not picture.marked(Mark.PROGRESS)
    names = missing or behind or (tuple(f"rank {rank}" for rank in silent) if len(silent) == 1 else ())
    node = _one_node(picture, names)
    why = _waited_for(names, missing=missing, behind=behind)
    if note := picture.doing(int(names[0].removeprefix("rank "))) if len(names) == 1 else None:
        why += f"; last seen there: {note.line.text.strip()[:80]}"
    return Draft(
        cls=C.HANG_INIT if early and not names else C.HANG_DESYNC,
        confidence=Confidence.MEDIUM if missing or behind else Confidence.LOW,
        causes=[*named, *(work.finding for work in works), *stuck][:8],
        kind=CulpritKind.NODE if node else CulpritKind.RANK if names else CulpritKind.UNKNOWN,
        names=(node,) if node else names[:8],
        why=why,
        node_action=NodeAction.WATCH if node else NodeAction.NONE,
        missing=("the logs and stacks of ranks that are not heard", "the flight recorder's dumps"),
    )


def _waited_for(names: Sequence[str], *, missing: Sequence[str], behind: Sequence[str]) -> str:
    if missing:
        return f"{listed(names)} did not come to the collective"
    if behind:
        return f"{listed(names)} waited in an earlier collective than the others: the ranks went apart"
    if names:
        return f"{names[0]} did not come to a collective that the others waited in"
    return "ranks waited in a collective for somebody who is not heard"


def _one_node(picture: Picture, names: Sequence[str]) -> str | None:
    """The node, when several named ranks are all on it."""
    nodes = {picture.nodes_of_ranks.get(int(name.removeprefix("rank "))) for name in names}
    return next(iter(nodes)) if len(names) > 1 and len(nodes) == 1 else None


def never_met(picture: Picture) -> Draft | None:
    """Ranks did not find each other at the start."""
    met = [each for each in picture.of(Role.CASCADE) if each.signal.id in STORE]
    closed = [each for each in picture.of(Role.CASCADE) if each.signal.cls is C.RENDEZVOUS]
    if met:
        counts = next((each.facts for each in met if "world" in each.facts), {})
        lacking = int(counts["world"]) - int(counts["joined"]) if counts else 0
        why = f"{lacking} of {counts['world']} ranks never came" if counts else "rank 0 or its store was not reached"
        return Draft(
            cls=C.UNKNOWN,
            confidence=Confidence.LOW,
            causes=met,
            why=f"{why}; those who speak only waited",
            missing=("the log of rank 0", "the logs of ranks that did not come, and their kernel logs"),
        )
    if closed:
        return Draft(
            cls=C.RENDEZVOUS,
            confidence=Confidence.LOW,
            causes=closed,
            why="the meeting of the agents ended; who left first is not said: form a new one",
            missing=("logs of the other agents",),
        )
    return None


def victims_only(picture: Picture) -> Draft | None:
    """Consequences without a cause: whose log is needed."""
    found = picture.of(Role.CASCADE, Role.TEARDOWN, Role.CONFIRMATION)
    if not found:
        return None
    gone = tuple(
        f"rank {each.facts['missing'].split(',')[0]}"
        for each in found
        if each.signal.id == "jax-peer-gone" and "missing" in each.facts
    )
    table = next((rank for line in picture.lines if (rank := _LAUNCHED.search(line.text))), None)
    names = gone[:1] or ((f"rank {table['rank']}",) if table else ())
    return Draft(
        cls=C.UNKNOWN,
        confidence=Confidence.LOW,
        causes=found[:6],
        kind=CulpritKind.RANK if names else CulpritKind.UNKNOWN,
        names=names,
        why="only consequences are here: who says this lost somebody else, or was ended",
        missing=(
            f"the log of {listed(names)}" if names else "the logs of the other ranks",
            "kernel logs of their nodes",
        ),
    )


_LAUNCHED: Final = re.compile(r"\b(?:rank\s*:\s*|local_rank:\s*)(?P<rank>\d+)")


_TROUBLE: Final = re.compile(r"(?i)\b(?:error|exception|fatal|fail(?:ed|ure))\b")
_MENDED: Final = re.compile(r"(?i)\bcorrected\b|\b(?:0|no) (?:errors?|failures?)\b")


def nothing(picture: Picture) -> Draft:
    """Nothing in this text is a failure, or nothing that the table knows."""
    blind = [finding for finding in picture.findings if finding.signal.id == "monitor-down"]
    if blind:
        return Draft(
            cls=C.UNKNOWN,
            confidence=Confidence.LOW,
            causes=blind,
            why="the monitor itself is broken: nothing is known of the node, and that is no fault of the node",
            missing=("a check of the node by other means",),
        )
    known = {finding.line.order for finding in picture.findings}
    words = [line for line in picture.lines if line.order not in known and _TROUBLE.search(line.text)]
    words = [line for line in words if not _MENDED.search(line.text)]
    if words:
        return Draft(
            cls=C.UNKNOWN,
            confidence=Confidence.LOW,
            causes=(),
            why=f"no signal of the table matches; {words[0].text.strip()[:100]!r} may be the cause",
            missing=("logs of all ranks and nodes around the end",),
        )
    return Draft(cls=C.NO_FAILURE, confidence=Confidence.LOW, causes=(), why="nothing here says that anything failed")


def _form(work: Work) -> tuple[str, tuple[int, int] | None]:
    return (work.op, work.numel if work.op in SAME_SIZE else None)


def _said(works: Sequence[Work]) -> str:
    if not works:
        return "something else"
    size = works[0].numel
    return works[0].op + (f" of {size[0]} elements" if size else "")


def _behind(works: Sequence[Work]) -> tuple[str, ...]:
    """Ranks that waited in an earlier collective than most."""
    numbers = Counter(work.seq for work in works if work.seq is not None and work.rank is not None)
    if len(numbers) < 2:
        return ()
    common, votes = numbers.most_common(1)[0]
    if 2 * votes <= sum(numbers.values()):
        return ()
    return tuple(
        f"rank {work.rank}" for work in works if work.seq is not None and common is not None and work.seq < common
    )


def _is_start(picture: Picture) -> bool:
    """Whether the wait was one of the first: a barrier, or the set-up of communicators."""
    return all(work.is_early for work in picture.works) and (
        any(each.signal.id in STORE for each in picture.findings) or bool(picture.works)
    )


def _reads_checkpoint(picture: Picture, finding: Finding) -> bool:
    if re.search(r"serialization|pickle|checkpoint|safetensors|load", finding.line.where):
        return True
    return any(note.line.capture == finding.line.capture for note in picture.marked(Mark.READING))


def _table_rank(finding: Finding) -> tuple[str, ...]:
    match = _LAUNCHED.search(finding.line.text)
    return (f"rank {match['rank']}",) if match else ()
