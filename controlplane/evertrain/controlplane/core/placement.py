"""Which nodes a job gets, and the next generation on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from evertrain.contract.launch import LauncherState, LauncherStatus
from evertrain.controlplane.core.contact import Contact
from evertrain.controlplane.core.draft import Draft
from evertrain.controlplane.core.exposure import mtbf_s
from evertrain.controlplane.core.history import GenerationHistory
from evertrain.controlplane.core.ids import Generation, Instant, JobId, NodeName, natural
from evertrain.controlplane.core.keepers import keepers
from evertrain.controlplane.core.lineage import newest_checkpoint
from evertrain.controlplane.core.state import Gang, Job, JobState, Member, Node

DEVICE_LABEL: Final = "device"
"""Label of a node that names the type of its devices; nodes without it are taken for one type."""


def obstacles(draft: Draft, job: Job, nodes: Iterable[NodeName]) -> Iterator[tuple[NodeName, str]]:
    """Those of ``nodes`` that ``job`` cannot use now, and why, in plain words."""
    job_id, name, state = job.id, job.name, draft.state
    unfit_because = unfit(draft, job)
    for node in nodes:  # thousands, with each generation of a large gang
        known, contact, holder = state.nodes[node], draft.contact(node), state.holders.get(node)
        if not contact.connected:
            yield node, f"out of sight ({contact.cause})"
        elif not contact.reported:
            yield node, "has not reported yet"
        elif known.cordon is not None:
            yield node, f"cordoned by {known.cordon.by}: {known.cordon.reason}"
        elif holder is not None and holder != name:
            yield node, f"held by job {holder}"
        elif others := _other_launchers(contact, job_id):
            yield node, f"still stopping {min(others)}"
        elif why := unfit_because(known):
            yield node, why


def _other_launchers(contact: Contact, job_id: JobId) -> list[str]:
    if not contact.launchers or (len(contact.launchers) == 1 and job_id in contact.launchers):
        return []
    return [n for n, each in contact.launchers.items() if n != job_id and each.state is not LauncherState.ABSENT]


def unfit(draft: Draft, job: Job) -> Callable[[Node], str]:
    """Tells why what a node has does not do for the job; empty when it does."""
    spec = job.spec
    devices = spec.nproc_per_node * spec.devices_per_worker
    alike = spec.reproducible_microbatches and job.last_nodes
    ours = _device(draft.state.nodes[job.last_nodes[0]]) if alike else ""

    def why(node: Node) -> str:
        if node.slots < spec.nproc_per_node:
            return f"has {node.slots} slots, {spec.nproc_per_node} are needed"
        if len(node.devices) < devices:
            return f"has {len(node.devices)} devices, {devices} are needed"
        if alike and (theirs := _device(node)) != ours:
            return f"has devices of type {theirs or '(not said)'}, a reproducible job stays on {ours or '(not said)'}"
        return ""

    return why


def usable(draft: Draft, job: Job) -> list[NodeName]:
    """Nodes the job can use: those it holds first, then the free ones by name."""
    found = [*usable_of(draft, job, job.reserved), *usable_of(draft, job, draft.state.idle)]
    return _of_one_kind(draft, found) if job.spec.reproducible_microbatches else found


def _of_one_kind(draft: Draft, nodes: Sequence[NodeName]) -> list[NodeName]:
    """Those of the type of device that most of ``nodes`` have: reproducible mode must not mix them."""
    kinds = [_device(draft.state.nodes[node]) for node in nodes]
    most = [kind for kind, _ in Counter(kinds).most_common(1)]
    return [node for node, kind in zip(nodes, kinds, strict=True) if kind in most]


def _device(node: Node) -> str:
    return node.labels.get(DEVICE_LABEL, "")


def usable_of(draft: Draft, job: Job, nodes: Iterable[NodeName]) -> list[NodeName]:
    """Those of ``nodes`` that the job can use, by name."""
    found = list(nodes)
    if not found:
        return []
    blocked = {node for node, _ in obstacles(draft, job, found)}
    return sorted((node for node in found if node not in blocked) if blocked else found, key=natural)


def whole(job: Job, count: int) -> int:
    """The most nodes, at most ``count``, that the job's size allows; 0 when it is too few.

    A job whose checkpoints cannot be resharded keeps the size that they have.
    """
    nodes, fixed = job.spec.nodes, job.fixed_nodes
    if fixed:
        return fixed if count >= fixed else 0
    size = min(count, job.spec.nodes_most) // nodes.multiple_of * nodes.multiple_of
    return size if size >= nodes.min else 0


def ready(draft: Draft, job: Job, nodes: Iterable[NodeName]) -> list[NodeName]:
    """Those of ``nodes`` whose launcher can run workers at once, and the gang's store if it comes first."""
    told = draft.statuses(job, (node for node in nodes if (c := draft.heard(node)) and c.connected and c.reported))
    return [node for node, status in told if status.state is LauncherState.READY and status.master_port != 0]


def form(draft: Draft, job: Job, nodes: Sequence[NodeName], *, reason: str, state: JobState, broke_at: Instant) -> Job:
    """The next generation on ``nodes``, all of which are :func:`ready`. Stable ranks: who stays keeps its order."""
    members = _seated(draft, job, nodes)
    first = draft.status(job, members[0].node)
    assert first is not None, "form() takes nodes that are ready"
    checkpoint = newest_checkpoint(job)
    done = job.history[-1].last_step if job.history else 0
    generation = Generation(job.generation + 1)
    gang = Gang(
        generation=generation,
        members=members,
        master_addr=members[0].address,
        master_port=first.master_port,
        restore_path=checkpoint.path if checkpoint else "",
        restore_digest=checkpoint.digest if checkpoint else "",
        restore_step=checkpoint.step if checkpoint else 0,
        formed_at=draft.now,
        broke_at=broke_at,
        reason=reason,
        mtbf_s=mtbf_s(job, len(members), draft.policy),
        memory_since=job.memory_since,
        copies_to=keepers([draft.state.nodes[m.node].labels for m in members])
        if job.spec.checkpoint.peer_copies
        else (),
    )
    entry = GenerationHistory(
        generation=generation,
        nodes=len(members),
        world_size=len(members) * job.spec.nproc_per_node,
        reason=reason,
        formed_at=draft.now,
        restored_step=gang.restore_step,
        steps_lost=max(0, done - gang.restore_step),
    )
    draft.tell(
        "gang.formed",
        f"generation {generation} formed: {describe(gang, entry)}; {reason}",
        job=job.name,
        generation=generation,
    )
    job = replace(
        job,
        generation=generation,
        gang=gang,
        last_nodes=gang.nodes,
        reserved=tuple(dict.fromkeys((*gang.nodes, *job.reserved))),
        steps_lost=job.steps_lost + entry.steps_lost,
        shunned=(),
        rollback=None,
        history=(*job.history, entry)[-draft.policy.history_max :],
    )
    draft.wake_in(draft.policy.start_timeout_s)
    return draft.enter(job, state, reason)


def _seated(draft: Draft, job: Job, nodes: Iterable[NodeName]) -> tuple[Member, ...]:
    before = {} if job.gang is None else {member.node: member for member in job.gang.members}
    chosen = dict.fromkeys(nodes)
    ranks = job.last_nodes
    fresh = sorted(chosen.keys() - set(ranks), key=natural)
    if len(chosen) == len(ranks):
        # Who comes takes the place of one that is gone: all others keep their ranks, and what they hold in memory.
        coming = iter(fresh)
        ranked = [node if node in chosen else next(coming) for node in ranks]
    else:
        ranked = [*(node for node in ranks if node in chosen), *fresh]
    width, known = job.spec.nproc_per_node, draft.state.nodes
    return tuple(
        _member(status, known[node], at * width, before.get(node))
        for at, (node, status) in enumerate(draft.statuses(job, ranked))
    )


def _member(status: LauncherStatus, node: Node, rank_first: int, before: Member | None) -> Member:
    if (
        before is not None
        and before.rank_first == rank_first
        and before.launcher_id == status.launcher_id
        and before.probe_port == status.probe_port
        and before.address == node.address
    ):
        return before  # most are: it costs less than to make another, and is compared at once
    return Member(
        node=node.name,
        rank_first=rank_first,
        address=node.address,
        probe_port=status.probe_port,
        launcher_id=status.launcher_id,
    )


def describe(gang: Gang, entry: GenerationHistory) -> str:
    """Members and resume point, in words."""
    nodes = ", ".join(gang.nodes[:8]) + (" ..." if len(gang.nodes) > 8 else "")
    start = f"resumes from step {gang.restore_step}" if gang.restore_path else "starts from step 0"
    return f"{entry.nodes} nodes ({nodes}), {entry.world_size} workers, {start}"
