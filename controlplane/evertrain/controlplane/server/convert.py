"""Core to API messages and back, in one file."""

from __future__ import annotations

from evertrain.api import mirror
from evertrain.api.v1 import agent_pb2, health_pb2, job_pb2, operator_pb2
from evertrain.contract.beacon import WITNESSES
from evertrain.contract.health import CONDITIONS_MAX, Condition, HealthStatus, Severity, overall
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import GroupState, LauncherStatus
from evertrain.contract.task import TaskResult
from evertrain.controlplane.core.checkpoint import Checkpoint, Export
from evertrain.controlplane.core.commands import Told
from evertrain.controlplane.core.contact import Contact
from evertrain.controlplane.core.drilled import DrillResult
from evertrain.controlplane.core.exposure import exposed_since
from evertrain.controlplane.core.health import subject
from evertrain.controlplane.core.history import GenerationHistory
from evertrain.controlplane.core.ids import Generation, NodeName
from evertrain.controlplane.core.orders import JobOrder
from evertrain.controlplane.core.outlook import outlook
from evertrain.controlplane.core.state import Gang, Job, Node, State
from evertrain.controlplane.shell.sessions import LogAsk, NodeReport, Orders, Outgoing, Probe


def spec_from(message: job_pb2.JobSpec) -> JobSpec:
    """A submitted specification; not checked yet."""
    return mirror.from_message(JobSpec, message)


def report_from(message: agent_pb2.NodeReport) -> NodeReport:
    """All that a node tells. Raises MirrorError on an unknown enum value."""
    return NodeReport(
        launchers=tuple(mirror.from_message(LauncherStatus, each) for each in message.launchers),
        tasks=tuple(mirror.from_message(TaskResult, each) for each in message.tasks),
        conditions=tuple(mirror.from_message(Condition, each) for each in message.conditions[:CONDITIONS_MAX]),
        conditions_left_out=message.conditions_left_out,
    )


def outgoing(item: Outgoing, *, term: int) -> agent_pb2.SessionResponse:
    """What goes down a node's stream."""
    match item:
        case Orders(revision=revision, jobs=jobs, tasks=tasks):
            wanted = [mirror.to_message(task, agent_pb2.TaskOrder) for task in tasks]
            orders = agent_pb2.NodeOrders(
                term=term, revision=revision, jobs=[_order(job) for job in jobs], tasks=wanted
            )
            return agent_pb2.SessionResponse(orders=orders)
        case Probe(probe=probe, command=command):
            request = agent_pb2.ProbeRequest(
                probe=probe,
                target=command.target,
                address=command.address,
                port=command.port,
                launcher_id=command.launcher_id,
                deadline_s=command.deadline_s,
            )
            return agent_pb2.SessionResponse(probe=request)
        case LogAsk():
            return agent_pb2.SessionResponse(log=mirror.to_message(item, agent_pb2.LogRequest))


def _order(order: JobOrder) -> agent_pb2.JobOrder:
    return mirror.to_message(order, agent_pb2.JobOrder)


def event(told: Told) -> operator_pb2.Event:
    """One line of the story."""
    return operator_pb2.Event(
        sequence=told.sequence,
        at_s=told.at,
        kind=told.kind,
        job=told.job,
        node=told.node,
        generation=told.generation,
        text=told.text,
        term=told.term,
    )


def job(state: State, item: Job) -> operator_pb2.Job:
    """Where a job stands: its record, and what its nodes last told."""
    message = operator_pb2.Job(
        name=item.name,
        id=item.id,
        spec=mirror.to_message(item.spec, job_pb2.JobSpec),
        state=f"JOB_STATE_{item.state.name}",
        reason=item.reason,
        since_s=item.since,
        next=outlook(state, item),
        submitted_by=item.submitted_by,
        submitted_at_s=item.submitted_at,
        generation=item.generation,
        failures=item.failures,
        steps_lost=item.steps_lost,
        step=item.best_step,
        history=[_generation(entry) for entry in item.history],
        checkpoints=[checkpoint(each) for each in item.checkpoints],
        saves_failed=item.saves_failed,
        exposed_since_s=exposed_since(item) or 0.0,
        overdue=bool(item.overdue_since),
        save_every=item.save_every,
        exports=[_export(each) for each in item.exports],
        notes=[
            operator_pb2.Note(generation=each.generation, at_s=each.at, what=each.what, departs=each.departs)
            for each in item.notes
        ],
        drill_of="" if item.drill is None else item.drill.job,
        last_drill=None if item.drills.last is None else _drill(item.drills.last),
        drilling=item.drills.running,
        drill_due_since_s=item.drills.due_since,
    )
    if item.gang is not None:
        _add_gang(message, state, item)
    return message


def _add_gang(message: operator_pb2.Job, state: State, item: Job) -> None:
    gang, workers = item.gang, item.spec.nproc_per_node
    assert gang is not None, "the caller looked"
    message.world_size = len(gang.members) * workers
    message.mtbf_s = gang.mtbf_s
    if (writing := _writing(state, item, gang)) is not None:
        message.checkpoints.append(writing)
    steps: list[int] = []
    for member in gang.members:
        status = state.status(item, member.node)
        current = status if status is not None and status.generation == gang.generation else None
        group = GroupState.NONE if current is None else current.group
        message.members.append(
            operator_pb2.Member(
                node=member.node,
                rank_first=member.rank_first,
                workers=workers,
                group=f"GROUP_STATE_{group.name}",
                reachable=state.contact(member.node).connected,
                step=0 if current is None else current.step,
            )
        )
        if current is not None and current.step:
            steps.append(current.step)
            if current.loss is not None and not message.HasField("loss"):
                message.loss = current.loss
            if current.tokens is not None and not message.HasField("tokens"):
                message.tokens = current.tokens
    if steps:
        message.step = max(steps)


def _writing(state: State, item: Job, gang: Gang) -> operator_pb2.Checkpoint | None:
    """The save that is under way, as far as a node tells of one: it is seen, and never stored."""
    told = [
        notice
        for member in gang.members[:WITNESSES]
        if (status := state.status(item, member.node)) is not None
        for notice in status.notices
        if notice.generation == gang.generation and notice.kind != "refused"
    ]
    newest = max(told, key=lambda notice: (notice.step, notice.kind != "writing"), default=None)
    if newest is None or newest.kind != "writing":
        return None
    return operator_pb2.Checkpoint(
        step=newest.step, generation=gang.generation, state=operator_pb2.CHECKPOINT_STATE_WRITING
    )


def _generation(entry: GenerationHistory) -> operator_pb2.Generation:
    return operator_pb2.Generation(
        generation=entry.generation,
        nodes=entry.nodes,
        world_size=entry.world_size,
        reason=entry.reason,
        ended=entry.ended,
        formed_at_s=entry.formed_at,
        ended_at_s=entry.ended_at,
        restored_step=entry.restored_step,
        first_step=entry.first_step,
        last_step=entry.last_step,
        steps_lost=entry.steps_lost,
        phases=mirror.to_message(entry.phases, operator_pb2.RecoveryPhases),
        exits=[mirror.to_message(each, job_pb2.ProcessExit) for each in entry.exits],
        restored_from=entry.restored_from,
    )


def checkpoint(each: Checkpoint) -> operator_pb2.Checkpoint:
    """What is known of a checkpoint."""
    return operator_pb2.Checkpoint(
        step=each.step,
        generation=each.generation,
        path=each.path,
        digest=each.digest,
        bytes_total=each.bytes_total,
        world_size=each.world_size,
        registered_at_s=each.registered_at,
        save_s=each.save_s,
        state=f"CHECKPOINT_STATE_{each.state.name}",
        note=each.note,
        pinned=each.pin is not None,
        pinned_by="" if each.pin is None else each.pin.by,
        pin_reason="" if each.pin is None else each.pin.reason,
        parent=each.parent,
        passed=each.passed,
        doubts=[f"{doubt.by}: {doubt.why}" for doubt in each.doubts],
        verified_by=each.verified_by,
        verified_at_s=each.verified_at,
        fixed_size=each.fixed_size,
        samples=each.samples,
        drill=None if each.drilled is None else _drill(each.drilled),
    )


def _drill(each: DrillResult) -> operator_pb2.DrillResult:
    found = each.comparison
    return operator_pb2.DrillResult(
        checkpoint=each.checkpoint,
        outcome=f"DRILL_OUTCOME_{each.outcome.name}",
        at_s=each.at,
        nodes=each.nodes,
        world_size=each.world_size,
        restore_s=each.restore_s,
        bytes_total=each.bytes_total,
        bytes_per_s=each.bytes_per_s,
        steps=each.steps,
        compared=found.compared,
        loss_deviation=found.loss_deviation,
        loss_step=found.loss_step,
        norm_deviation=found.norm_deviation,
        norm_step=found.norm_step,
        tolerance=each.tolerance,
        note=each.note,
    )


def _export(each: Export) -> operator_pb2.Export:
    return operator_pb2.Export(
        id=each.id,
        checkpoint=each.checkpoint,
        destination=each.destination,
        by=each.by,
        at_s=each.at,
        state=f"EXPORT_STATE_{each.state.name}",
        note=each.note,
    )


def node(state: State, item: Node, *, whole: bool = False) -> operator_pb2.Node:
    """Where a node stands; ``whole`` with each condition of its health."""
    contact, holder = state.contact(item.name), state.holders.get(item.name, "")
    health = overall(contact.conditions) if contact.connected else HealthStatus.UNKNOWN
    watched = [each for each in contact.conditions if each.severity is Severity.WATCH]
    message = operator_pb2.Node(
        name=item.name,
        health=f"NODE_HEALTH_{health.name}",
        availability=_availability(item, holder),
        reason=_node_reason(item, contact),
        since_s=contact.since,
        job=holder,
        generation=_generation_on(state, item.name),
        address=item.address,
        version=item.version,
        slots=item.slots,
        devices=item.devices,
        labels=item.labels,
        unhealthy=sum(1 for each in contact.conditions if each.counts),
        unseen=sum(1 for each in contact.conditions if each.status is HealthStatus.UNKNOWN and each not in watched),
        watched=len(watched) + contact.conditions_left_out,
        conditions=[mirror.to_message(each, health_pb2.Condition) for each in contact.conditions if whole],
    )
    if item.cordon is not None:
        message.cordoned_by, message.cordoned_at_s = item.cordon.by, item.cordon.at
    return message


def _availability(item: Node, holder: str) -> operator_pb2.NodeAvailability:
    if item.cordon is None:
        return operator_pb2.NODE_AVAILABILITY_READY
    if not item.cordon.drain:
        return operator_pb2.NODE_AVAILABILITY_CORDONED
    return operator_pb2.NODE_AVAILABILITY_DRAINING if holder else operator_pb2.NODE_AVAILABILITY_DRAINED


def _node_reason(item: Node, contact: Contact) -> str:
    parts = [f"out of sight: {contact.cause}"] if not contact.connected else []
    counted = [each for each in contact.conditions if each.counts]
    parts += [f"{subject(counted[0])}: {counted[0].evidence} ({counted[0].signal})"] if counted else []
    parts += [f"and {len(counted) - 1} more"] if len(counted) > 1 else []
    unseen = [each for each in contact.conditions if each.status is HealthStatus.UNKNOWN and not counted]
    parts += [f"{each.entity.name} cannot be seen: {each.evidence}" for each in unseen[:1]]
    if item.cordon is not None:
        parts.append(f"{item.cordon.reason} ({item.cordon.by})")
    return "; ".join(parts)


def _generation_on(state: State, name: NodeName) -> Generation:
    launchers = state.contact(name).launchers.values()
    return Generation(max((status.generation for status in launchers), default=0))
