"""Limits and waits of the decisions, each with the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass

from evertrain.controlplane.core.logic import NEWEST, Logic


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How patient the coordinator is. Lengths are seconds on the leader's clock."""

    logic: Logic = NEWEST
    """Given to the jobs that are submitted from now on."""
    reconnect_grace_s: float = 8.0
    """After an election, time for agents to find the new leader: they pause up to 5 s between two rounds of tries,
    and give a coordinator that does not answer 3 s."""
    probe_every_s: float = 0.5
    """Between two rounds of probes of a node that is out of sight."""
    probers_max: int = 3
    """Nodes asked in one round; one refusal decides, silence has to be met twice."""
    probe_deadline_s: float = 0.5
    """A host that lost power answers nothing, to nobody: two tries and the silence limit keep detection at 3 s."""
    probe_answers_s: float = 3.0
    """One prober that got no answer is believed only when the others had so long to say otherwise. If all say so,
    nobody waits."""
    probe_wait_s: float = 1.2
    """With a survivor's collective error at hand, how long a probe may still clear the node."""
    echo_wait_s: float = 0.15
    """When only victims have spoken (a collective's broken connection), how long the cause is waited for."""
    agent_return_s: float = 10.0
    """A broken gang waits so long for the agent of a node whose launcher still answers."""
    alone_lost_after_s: float = 600.0
    """A node of which no probe tells is given up after this, while other nodes are seen: if none is, the one that
    cannot be reached may be the coordinator."""
    grow_after_s: float = 5.0
    """A gang runs at least so long before it is stopped to grow."""
    grow_again_after_s: float = 600.0
    """After the workers did not yield in time, growth is not tried again for so long."""
    yield_timeout_s: float = 120.0
    """Workers asked to save and leave have so long."""
    attach_wait_s: float = 5.0
    """From the orders of a job's first generation: workers that have not said hello by then use no trainer library."""
    quick_s: float = 30.0
    """A generation of a script without the trainer library that ended sooner completed nothing."""
    slow_after: int = 3
    """Generations in a row that came no further than others before count as nothing from then on."""
    pause_s_min: float = 1.0
    pause_growth: float = 4.0
    pause_s_max: float = 60.0
    """After generations that completed nothing: 1, 4, 16, 60 s. Long enough for storage that is away for a moment,
    short enough that nobody waits for an hour when it is back."""
    start_timeout_s: float = 120.0
    """From the orders of a generation to all its workers running."""
    verifications_max: int = 4
    """Checkpoints that are read back at the same time in the whole cluster: storage serves training first."""
    removals_max: int = 8
    exports_max: int = 2
    task_s_min: float = 60.0
    """Every task with a checkpoint has so long, and as long as its bytes take at the pace below."""
    task_bytes_per_s: float = 32 * 2**20
    """A tenth of what one client gets of a slow shared file system."""
    task_margin_s: float = 15.0
    """Beyond its deadline a node may take so long to say how a task ended."""
    task_return_s: float = 30.0
    """A task of a node that went out of sight is given to another one after this."""
    task_pause_s_min: float = 1.0
    task_pause_growth: float = 4.0
    task_pause_s_max: float = 600.0
    """After tasks that could not be done: 1, 4, 16, 64, 256, 600 s. Each is also tried on another node."""
    tasks_tried_max: int = 8
    """Of a job that has ended: then its checkpoints are left as they are."""
    second_opinion_s: float = 60.0
    """A node that found a checkpoint damaged is asked again only when so long no other one could be."""
    unverified_max: int = 8
    """Checkpoints that nobody could read back are kept up to this number, or ``keep_last`` if that is more."""
    milestones_max: int = 64
    """Of the checkpoints kept for ``keep_every_steps``, so many stay in the record; older ones stay on storage only."""
    evidence_s: float = 7 * 86_400.0
    """What was found damaged or was rolled back past stays so long after the end of its job."""
    notes_max: int = 64
    """Notes on the run a job's record remembers."""
    drills_max: int = 2
    """Restore drills at the same time in the whole cluster: they read storage as well."""
    drill_s_min: float = 1800.0
    """A drill has so long, as long as its bytes take at the pace of a task, and the job's ``prepare_timeout``."""
    drill_crashes_max: int = 2
    """Drills in a row whose own processes failed: one may be chance, then it is the checkpoint or the script."""
    drill_pause_s_min: float = 60.0
    drill_pause_s_max: float = 3600.0
    """After drills that ended without a result: 1, 4, 16, 60 min."""
    drill_tries_max: int = 8
    """Of a drill that an operator asked for."""
    drill_asked_s: float = 86_400.0
    """An operator's wish for a drill lapses after this."""
    exports_kept: int = 8
    """Exports a job's record remembers."""
    node_mtbf_s: float = 154 * 86_400.0
    """How long a node runs before it breaks a gang, before anything was seen of the job: 6.5 failures per 1,000
    node-days (Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", 2024)."""
    node_mtbf_weight: float = 1.0
    """Failures that have to be seen before they count as much as that."""
    history_max: int = 100
    """Generations a job's record keeps: they travel with every change of the job."""
    checkpoints_max: int = 32
    exits_max: int = 8
    requests_max: int = 2_000
    """Operator requests remembered, so that a repeat gets the first answer."""
    incidents_max: int = 500
    """Incidents kept; beyond it the oldest that are resolved are forgotten, then the oldest."""
    incident_quiet_s: float = 60.0
    """A job that has been back at work for so long has its incident resolved."""
    incident_again_s: float = 86_400.0
    """The same within this time is a recurrence, not a new incident."""
    events_max: int = 10_000
    """Events kept in the store."""
