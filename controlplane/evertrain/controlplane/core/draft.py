"""A decision in the making: collects changes, story lines and commands. Lives within one ``step`` only."""

from __future__ import annotations

from dataclasses import replace

from evertrain.contract.launch import LauncherStatus
from evertrain.controlplane.core.commands import Answer, Command, Decision, Refusal, Told, WakeAt
from evertrain.controlplane.core.ids import Generation, Instant, JobName, NodeName, later
from evertrain.controlplane.core.policy import Policy
from evertrain.controlplane.core.state import Contact, Job, JobState, Node, Request, State


class Draft:
    """The state as it becomes, and what has to be said and done about it."""

    def __init__(self, state: State, *, now: Instant, policy: Policy) -> None:
        self.state = state
        self.now = now
        self.policy = policy
        self._jobs: dict[JobName, None] = {}
        self._nodes: dict[NodeName, None] = {}
        self._requests: dict[str, None] = {}
        self._told: list[Told] = []
        self._commands: list[Command] = []
        self._wake: Instant | None = None
        self._answers: dict[str, Answer] = {}

    def put_job(self, job: Job) -> Job:
        """Make ``job`` part of the state; returns it."""
        if self.state.jobs.get(job.name) != job:
            self.state = self.state.with_job(job)
            self._jobs[job.name] = None
        return job

    def put_node(self, node: Node) -> None:
        """Make ``node`` part of the state."""
        if self.state.nodes.get(node.name) != node:
            self.state = replace(self.state, nodes=self.state.nodes.set(node.name, node))
            self._nodes[node.name] = None

    def put_contact(self, node: NodeName, contact: Contact) -> None:
        """Note what is seen of ``node``; not durable."""
        self.state = replace(self.state, contacts=self.state.contacts.set(node, contact))

    def enter(self, job: Job, state: JobState, reason: str) -> Job:
        """Put ``job`` into ``state``; told when the state, noted when only the reason is new."""
        if job.state is state:
            return self.put_job(replace(job, reason=reason))
        self.tell("job." + state, f"job {job.name} is {state}: {reason}", job=job.name, generation=job.generation)
        return self.put_job(replace(job, state=state, reason=reason, since=self.now))

    def tell(
        self, kind: str, text: str, *, job: str = "", node: str = "", generation: Generation = Generation(0)
    ) -> None:
        """Add a line to the story."""
        sequence = self.state.sequence + 1
        self.state = replace(self.state, sequence=sequence)
        self._told.append(
            Told(
                sequence=sequence,
                at=self.now,
                kind=kind,
                text=text,
                job=job,
                node=node,
                generation=generation,
                term=self.state.term,
            )
        )

    def command(self, command: Command) -> None:
        """Have ``command`` dispatched after the commit."""
        self._commands.append(command)

    def wake_in(self, seconds: float) -> None:
        """Decide again after ``seconds`` at the latest. Never sooner than a millisecond."""
        at = later(self.now, max(0.001, seconds))
        self._wake = at if self._wake is None else min(at, self._wake)

    def accept(self, request_id: str, *, verb: str, target: str) -> None:
        """Answer a request with yes and remember it."""
        requests = self.state.requests.set(
            request_id, Request(request_id=request_id, verb=verb, target=target, at=self.now)
        )
        self._requests[request_id] = None
        if len(requests) > self.policy.requests_max:
            oldest = min(requests.values(), key=lambda request: request.at).request_id
            requests = requests.delete(oldest)
            self._requests[oldest] = None
        self.state = replace(self.state, requests=requests)
        self._answers[request_id] = Answer(target=target)

    def answer(self, request_id: str, target: str, refusal: Refusal | None = None, text: str = "") -> None:
        """Answer a request without remembering it."""
        self._answers[request_id] = Answer(target=target, refusal=refusal, text=text)

    def job(self, name: JobName) -> Job:
        """The job as it is now in this draft."""
        return self.state.jobs[name]

    def status(self, job: Job, node: NodeName) -> LauncherStatus | None:
        """What ``node`` last told of its launcher for ``job``."""
        return self.state.status(job, node)

    def decision(self) -> Decision:
        """The whole of it."""
        wake = () if self._wake is None else (WakeAt(at=self._wake),)
        return Decision(
            state=self.state,
            jobs=tuple(self._jobs),
            nodes=tuple(self._nodes),
            requests=tuple(self._requests),
            told=tuple(self._told),
            commands=(*self._commands, *wake),
            answers=self._answers,
        )
