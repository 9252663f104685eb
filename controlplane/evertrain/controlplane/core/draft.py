"""A decision in the making: collects changes, story lines and commands. Lives within one ``step`` only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from immutables import Map

from evertrain.contract.incident import Incident
from evertrain.contract.launch import LauncherState, LauncherStatus
from evertrain.controlplane.core.agenda import Agenda
from evertrain.controlplane.core.commands import Answer, Command, Decision, Refusal, Told, WakeAt
from evertrain.controlplane.core.contact import Contact, told_of
from evertrain.controlplane.core.drilled import drill_name
from evertrain.controlplane.core.ids import Generation, Instant, JobName, NodeName, Term
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import Job, JobState, Node, Request, State


def _claim(job: Job) -> tuple[JobState, bool, int, int]:
    """What of a job says whether it could use more nodes, besides those that it holds."""
    return (job.state, job.cancel is None, len(job.reserved), job.fixed_nodes)


class Draft:
    """The state as it becomes, and what has to be said and done about it."""

    def __init__(self, state: State, *, now: Instant, policy: Policy) -> None:
        self.now = now
        self.policy = policy
        self.agenda = Agenda(state.wakes, now=now)
        self._state = state
        self._contacts = state.contacts.mutate()
        self._contacts_put = False
        self._unread: defaultdict[JobName, dict[NodeName, None]] = defaultdict(dict)
        self._jobs: dict[JobName, None] = {}
        self._nodes: dict[NodeName, None] = {}
        self._requests: dict[str, None] = {}
        self._incidents: dict[str, None] = {}
        self._told: list[Told] = []
        self._commands: list[Command] = []
        self._answers: dict[str, Answer] = {}

    @property
    def state(self) -> State:
        """With all that was put so far. Only the musters may lag: :meth:`news` brings a job's up to date."""
        if self._contacts_put:
            # A batch of reports is put in one go: a new map for each would cost more than all the rest.
            self._set_contacts(self._contacts.finish())
        return self._state

    def _set_contacts(self, contacts: Map[NodeName, Contact]) -> None:
        self._state = replace(self._state, contacts=contacts)
        self._contacts, self._contacts_put = contacts.mutate(), False

    # -- what is put ------------------------------------------------------------------

    def put_job(self, job: Job) -> Job:
        """Make ``job`` part of the state; returns it."""
        before = self._state.jobs.get(job.name)
        if before is job or before == job:
            return job
        self._state = self.state.with_job(job)
        self._jobs[job.name] = None
        self.agenda.add(job.name)
        if job.drills.running:
            self.agenda.add(drill_name(job.name))
        if before is None or _claim(before) != _claim(job):
            self.agenda.stir()  # a drill may have to give way, or may begin
        if (() if before is None else before.tasks) != job.tasks:
            self.agenda.stir()  # others may have waited for a node, or for their turn
        held = () if before is None else before.reserved
        if held is not job.reserved and held != job.reserved:
            self.agenda.stir()
            known = set(held)
            self._unread[job.name].update((node, None) for node in job.reserved if node not in known)
        if job.gang is not None and (before is None or before.gang is None):
            # Nobody read what they said while there was no gang whose record it belongs into.
            self._unread[job.name].update(dict.fromkeys(job.reserved))
        return job

    def enter(self, job: Job, state: JobState, reason: str) -> Job:
        """Put ``job`` into ``state``; told when the state, noted when only the reason is new."""
        if job.state is state:
            return self.put_job(job if job.reason == reason else replace(job, reason=reason))
        self.tell("job." + state, f"job {job.name} is {state}: {reason}", job=job.name, generation=job.generation)
        return self.put_job(replace(job, state=state, reason=reason, since=self.now))

    def put_node(self, node: Node) -> None:
        """Make ``node`` part of the state."""
        if self._state.nodes.get(node.name) != node:
            self._state = self._state.with_node(node)
            self._nodes[node.name] = None
            self.agenda.stir()
            if (holder := self._state.holders.get(node.name)) is not None:
                self.agenda.add(holder)

    def put_incident(self, incident: Incident) -> None:
        """Make ``incident`` part of the state."""
        self._state = self._state.with_incident(incident)
        self._incidents[incident.id] = None

    def forget_incident(self, incident: Incident) -> None:
        """Make ``incident`` no longer part of the state."""
        self._state = self._state.without_incident(incident)
        self._incidents[incident.id] = None

    def put_contact(self, node: NodeName, contact: Contact, *, before: Contact | None) -> None:
        """Note what is seen of ``node`` in place of what was :meth:`heard` before; not durable."""
        self._contacts[node] = contact
        self._contacts_put = True
        holder = self._state.holders.get(node)
        if holder is not None:
            self._unread[holder][node] = None
            self.agenda.add(holder)
        for name in self._state.errands.get(node, ()):
            self.agenda.add(name)
        if holder is None or before is None or not contact.as_open_as(before):
            self.agenda.stir()

    def note_asked(self, node: NodeName, probers: tuple[NodeName, ...]) -> None:
        """Note that ``probers`` are asked about ``node``: no news to anybody."""
        self._contacts[node] = replace(self.contact(node), probed_at=self.now, asked=probers)
        self._contacts_put = True

    def begin_term(self, term: Term, at: Instant) -> None:
        """A leadership begins: nothing is heard yet, and everything is to be decided."""
        self._state = replace(self._state, term=term, led_since=at, ordering_since=at)
        self._set_contacts(Map())
        self.look_afresh()

    def orders_again(self, at: Instant) -> None:
        """Orders can be sent again: waits for nodes begin anew."""
        self._state = replace(self.state, ordering_since=at)
        self.agenda.add_waiting()

    def look_afresh(self) -> None:
        """Read all that is held again and decide all jobs, as if everything were news."""
        self._state = self.state.indexed()
        for name in self._state.live:
            self._unread[name] = dict.fromkeys(self._state.jobs[name].reserved)
            self.agenda.add(name)
        for name in self._state.lingering:
            self.agenda.add(name)

    # -- what is read -----------------------------------------------------------------

    def job(self, name: JobName) -> Job:
        """The job as it is now in this draft."""
        return self._state.jobs[name]

    def status(self, job: Job, node: NodeName) -> LauncherStatus | None:
        """What ``node`` last told of its launcher for ``job``."""
        contact = self._contacts.get(node)
        return None if contact is None else told_of(contact, job.id)

    def heard(self, node: NodeName) -> Contact | None:
        """What is seen of ``node``; None: it was not heard of in this term."""
        return self._contacts.get(node)

    def contact(self, node: NodeName) -> Contact:
        """What is seen of ``node``; a node not heard of in this term is out of sight since its start."""
        return self._contacts.get(node) or self._state.contact(node)

    def node(self, name: NodeName) -> Node | None:
        """The record of a node; None: nobody registered it."""
        return self._state.nodes.get(name)

    def news(self, job: Job) -> Iterable[NodeName]:
        """Nodes of ``job`` whose words were not read since they changed; its muster is brought up to date with them."""
        unread = self._unread.pop(job.name, {})
        if unread:
            self._state = self.state.with_read(job, unread)
        return unread

    def statuses(self, job: Job, nodes: Iterable[NodeName]) -> Iterator[tuple[NodeName, LauncherStatus]]:
        """What those of ``nodes`` that have a launcher for ``job`` last told of it."""
        contact_of, job_id = self._contacts.get, job.id
        for node in nodes:
            contact = contact_of(node)
            if contact is None:
                continue
            status = contact.launchers.get(job_id)  # told_of(), without a call for each of many thousands
            if status is not None and status.state is not LauncherState.ABSENT:
                yield node, status

    # -- what is said -----------------------------------------------------------------

    def tell(
        self, kind: str, text: str, *, job: str = "", node: str = "", generation: Generation = Generation(0)
    ) -> None:
        """Add a line to the story."""
        self._told.append(
            Told(
                sequence=self._state.sequence + len(self._told) + 1,
                at=self.now,
                kind=kind,
                text=text,
                job=job,
                node=node,
                generation=generation,
                term=self._state.term,
            )
        )

    def command(self, command: Command) -> None:
        """Have ``command`` dispatched after the commit."""
        self._commands.append(command)

    def wake_in(self, seconds: float) -> None:
        """Decide again after ``seconds`` at the latest. Never sooner than a millisecond."""
        self.agenda.wake_in(seconds)

    def accept(self, request_id: str, *, verb: str, target: str) -> None:
        """Answer a request with yes and remember it."""
        requests = self._state.requests.set(
            request_id, Request(request_id=request_id, verb=verb, target=target, at=self.now)
        )
        self._requests[request_id] = None
        if len(requests) > self.policy.requests_max:
            oldest = min(requests.values(), key=lambda request: (request.at, request.request_id)).request_id
            requests = requests.delete(oldest)
            self._requests[oldest] = None
        self._state = replace(self._state, requests=requests)
        self._answers[request_id] = Answer(target=target)

    def answer(self, request_id: str, target: str, refusal: Refusal | None = None, text: str = "") -> None:
        """Answer a request without remembering it."""
        self._answers[request_id] = Answer(target=target, refusal=refusal, text=text)

    def decision(self) -> Decision:
        """The whole of it."""
        for name in tuple(self._unread):
            self.news(self._state.jobs[name])
        wakes = self.agenda.wakes
        wake = (WakeAt(at=min(wakes.values())),) if wakes else ()
        return Decision(
            state=replace(self.state, sequence=self._state.sequence + len(self._told), wakes=wakes),
            jobs=tuple(self._jobs),
            nodes=tuple(self._nodes),
            requests=tuple(self._requests),
            incidents=tuple(self._incidents),
            told=tuple(self._told),
            commands=(*self._commands, *wake),
            answers=self._answers,
        )
