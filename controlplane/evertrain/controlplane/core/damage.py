"""What is wrong with a gang, and which failure is the cause and which only its echo. Decides nothing about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from evertrain.contract.exits import WorkerExit
from evertrain.contract.launch import GroupState, ProcessExit
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.ids import NodeName
from evertrain.controlplane.core.sight import Lookout, Lost, Seen, Unknown
from evertrain.controlplane.core.state import OVER, Gang, Job, Member, Muster
from evertrain.controlplane.core.words import some

ECHOES = (
    "connection closed by peer",
    "connection reset",
    "broken pipe",
    "connection refused",
    "timed out waiting",
    "gloo",
    "nccl",
    "socket",
)
"""Words of victims: of collectives and stores whose other end went away."""
SIGNALS = {6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is wrong with a gang."""

    lost: Mapping[NodeName, str]
    """Members that are gone, and the evidence."""
    unknown: Mapping[NodeName, Unknown]
    """Members that cannot be seen."""
    failed: tuple[NodeName, ...]
    """Connected members whose workers of this generation failed or vanished."""
    own: bool
    """Workers themselves failed, and not what is under them: charged to the job."""
    echo: bool
    """Only victims have spoken so far: what broke their connections is not known."""
    cause: str
    """In plain words; empty when nothing is broken."""
    code: int = 0
    """With which the worker ended whose end is the cause; 0 when the cause is another one."""

    @property
    def broken(self) -> bool:
        """The generation cannot go on."""
        return bool(self.lost or self.failed)


NONE = Damage(lost={}, unknown={}, failed=(), own=False, echo=False, cause="")


def inspect(draft: Draft, job: Job, gang: Gang) -> Damage:
    """Look at the members that are not plainly at work. Asks for probes, and to be woken, where that tells more."""
    muster = draft.state.musters[job.name]
    suspects = _suspects(draft, gang, muster)
    if not suspects:
        return NONE  # as it is most of the time, and a job is looked at with every report
    lookout = Lookout(draft, job, gang, muster)
    lost: dict[NodeName, str] = {}
    unknown: dict[NodeName, Unknown] = {}
    failures: dict[NodeName, _Failure] = {}
    for member in suspects:
        match lookout.sight(member):
            case Lost(reason=reason):
                lost[member.node] = reason
            case Unknown() as state:
                unknown[member.node] = state
            case Seen():
                if failure := _failure(draft, job, gang, member):
                    failures[member.node] = failure
    under = [failure.cause for failure in failures.values() if not failure.own]
    worst = min(_bad_ends(draft, job, failures), default=None)
    if lost:
        cause = some([f"node {node} lost: {reason}" for node, reason in lost.items()], between="; ")
    elif under:
        cause = under[0]
    else:
        causes = [failure.cause for failure in failures.values()]
        cause = worst.text if worst is not None else some(causes, between="; ")
    code = 0 if lost or under or worst is None else worst.code
    echo = not lost and not under and worst is not None and worst.echo
    # Victims of a node that can't be seen tell nothing of the job's own processes.
    innocent = under or code == WorkerExit.CHECKPOINT_UNREADABLE or (echo and unknown)
    return Damage(
        lost=lost,
        unknown=unknown,
        failed=tuple(failures),
        own=not innocent and any(each.own for each in failures.values()),
        echo=echo,
        cause=cause,
        code=code,
    )


def _suspects(draft: Draft, gang: Gang, muster: Muster) -> list[Member]:
    """Members that may be lost or broken, in group rank order. Asks to be woken when all must have started."""
    nodes = dict(muster.troubled)
    if muster.unstarted:
        waited_s = draft.now - draft.state.ordered(gang.formed_at)
        if waited_s < draft.policy.start_timeout_s:
            draft.wake_in(draft.policy.start_timeout_s - waited_s)
        else:
            nodes |= dict.fromkeys(node for node, started in muster.behind.items() if not started)
    if not nodes:
        return []
    left = {*gang.finished, *gang.yielded}
    return [gang.members[seat] for seat in sorted(muster.seats[node] for node in nodes if node not in left)]


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a connected member does not run the generation. ``own``: its workers failed, not what is under them."""

    cause: str
    own: bool


def _failure(draft: Draft, job: Job, gang: Gang, member: Member) -> _Failure | None:
    status, contact = draft.status(job, member.node), draft.contact(member.node)
    if contact.reported and (status is None or status.launcher_id != member.launcher_id):
        # The launcher that the generation was formed with; a new one in its place would meet a broken gang.
        told = contact.launchers.get(job.id)
        why = f": {told.error}" if told is not None and told.error else ""
        return _Failure(f"the launcher on {member.node} is gone{why}", own=False)
    if status is not None and status.generation == gang.generation:
        if status.group is GroupState.FAILED:
            why = f": {status.error}" if status.error else ""
            return _Failure(f"workers on {member.node} failed{why}", own=True)
        if status.group in OVER:
            return _Failure(f"workers on {member.node} were stopped", own=True)
        if status.group is not GroupState.NONE:
            return None
    if draft.now - draft.state.ordered(gang.formed_at) >= draft.policy.start_timeout_s:
        text = f"{member.node} did not start its workers within {draft.policy.start_timeout_s:.0f} s"
        return _Failure(text, own=False)
    return None


class _BadEnd(NamedTuple):
    """One worker's end. Sorted, the likeliest cause comes first: before its echoes, and before our own stops."""

    stopped_by_us: bool
    echo: bool
    after_s: float
    text: str
    code: int


def _bad_ends(draft: Draft, job: Job, nodes: Iterable[NodeName]) -> Iterator[_BadEnd]:
    for node in nodes:
        status = draft.status(job, node)
        for each in status.exits if status is not None else ():
            if each.code != 0:
                text = f"rank {each.rank} on {node} {say_exit(each)}"
                yield _BadEnd(each.stopped_by_us, _is_echo(each), each.after_s, text, each.code)


def _is_echo(each: ProcessExit) -> bool:
    text = each.message.lower()
    return each.code > 0 and any(word in text for word in ECHOES)


def say_exit(each: ProcessExit) -> str:
    """How a worker ended, in words."""
    if each.still_s:
        return f"stood still for {each.still_s:.1f} s: its process was stopped (SIGSTOP)"
    if each.code < 0:
        return f"was killed by {SIGNALS.get(-each.code, f'signal {-each.code}')}"
    if each.code == WorkerExit.CHECKPOINT_REFUSED:
        return "refused the checkpoint it was to restore from"
    if each.code == WorkerExit.CHECKPOINT_UNREADABLE:
        return "cannot read the storage of the checkpoint it was to restore from"
    return f"exited with {each.code}" + (f": {each.message}" if each.message else "")
