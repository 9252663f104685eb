"""What a seed of the swarm is: its cluster, weather, jobs, and the faults that befall them. Runs nothing.

Every part has a stream of chance of its own: a cluster and its jobs are the
same whatever faults are drawn or left out. Faults are drawn the swarm's way:
each seed has some kinds only, in a mix of its own, and they come in bursts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from random import Random

from evertrain.chaos.sim.chance import Chance
from evertrain.chaos.sim.faults import KINDS, Hits, Kind, Lasts
from evertrain.chaos.sim.network import Weather
from evertrain.chaos.sim.plan import Phase, Planned
from evertrain.chaos.sim.site import Program
from evertrain.chaos.sim.world import Options
from evertrain.contract.jobspec import CheckpointPolicy, DrillPolicy, JobSpec, NodeRange, RetryPolicy
from evertrain.controlplane.core.policy import Policy

SETTLE_S = 300.0
"""Jobs start before the first fault begins."""
LAST_S = 1_200.0
"""The last burst begins so long before the healing: none of its faults waits for its phase beyond it."""
FAULTS = (8, 40)
KINDS_SHARE = 0.35
"""Of all kinds, how many a seed has."""
BURST_MAX = 5
Z99 = 2.326
"""Standard deviations from the median to the 99th percentile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much a seed simulates."""

    nodes: int = 16
    coordinators: int = 3
    hours: float = 24.0

    @property
    def seconds(self) -> float:
        """Until everything is healed."""
        return self.hours * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A job that somebody wants done."""

    spec: JobSpec
    program: Program
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A cluster and what it is to do."""

    options: Options
    weather: Weather
    work: tuple[Work, ...]


def draw_setup(seed: int, size: Size) -> Setup:
    """The cluster of a seed."""
    chance = Chance(seed)
    return Setup(
        options=_options(seed, chance.of("swarm cluster"), size),
        weather=_weather(chance.of("swarm weather")),
        work=_work(chance.of("swarm jobs"), size),
    )


def _options(seed: int, rng: Random, size: Size) -> Options:
    off = [rng.choice((0.0, 0.1, 3.0, 30.0)) * rng.uniform(-1.0, 1.0) for _ in range(size.coordinators)]
    drifts = [rng.choice((0.0, 2e-5, 5e-4)) * rng.uniform(-1.0, 1.0) for _ in range(size.coordinators)]
    policy = Policy(
        reconnect_grace_s=rng.choice((1.0, 2.0)) * Policy().reconnect_grace_s,
        probers_max=rng.choice((3, 5)),
        agent_return_s=rng.choice((3.0, 10.0)),
        alone_lost_after_s=rng.choice((120.0, 600.0)),
        grow_after_s=rng.choice((5.0, 60.0)),
        history_max=rng.choice((10, 30, 100)),
        checkpoints_max=rng.choice((20, 32)),
        events_max=rng.choice((200, 2_000)),
        requests_max=rng.choice((200, 2_000)),
    )
    return Options(
        seed=seed,
        nodes=size.nodes,
        coordinators=size.coordinators,
        lease_ttl_s=rng.choice((20.0, 60.0, 60.0, 60.0)),
        policy=policy,
        clock_offsets_s=tuple(round(each, 3) for each in off),
        clock_drifts=tuple(drifts),
    )


def _weather(rng: Random) -> Weather:
    if rng.random() < 0.4:
        return Weather()
    return Weather(
        delay_s=rng.uniform(0.0002, 0.005),
        jitter_s=rng.uniform(0.0002, 0.005),
        loss=rng.choice((0.0, 0.001, 0.02)),
        twice=rng.choice((0.0, 0.01, 0.05)),
    )


# -- jobs ---------------------------------------------------------------------------------------


def _work(rng: Random, size: Size) -> tuple[Work, ...]:
    count = rng.randint(1, 4)
    shapes: Sequence[Callable[[Random, int], NodeRange]] = (_elastic, _elastic, _fixed)
    work: list[Work] = []
    for name in "abcd"[:count]:
        nodes = rng.choice(shapes)(rng, max(1, size.nodes // count))
        trainer, short = rng.random() < 0.8, rng.random() < 0.25
        program = _program(rng, trainer=trainer, short=short)
        saves_s = rng.uniform(600.0, 5400.0)
        checkpoint = CheckpointPolicy(
            dir="/checkpoints",
            every_steps=max(1, int(saves_s / program.step_s)),
            keep=rng.randint(2, 5),
            memory_every_steps=(copied := rng.choice((0, 1, 7))),
            peer_copies=copied > 0 and rng.random() < 0.5,
            drill=DrillPolicy(every_s=rng.choice((0.0, 600.0, 3600.0))),
        )
        spec = JobSpec(
            name=name,
            script="/jobs/train.py",
            nodes=nodes,
            nproc_per_node=8,
            checkpoint=checkpoint if trainer else CheckpointPolicy(),
            retry=_retry(rng, trainer=trainer),
            stop_grace_s=rng.choice((2.0, 10.0, 30.0)),
        )
        work.append(Work(spec=spec, program=program, at_s=round(rng.choice((0.0, rng.uniform(0.0, 7200.0))), 2)))
    return tuple(work)


def _elastic(rng: Random, share: int) -> NodeRange:
    multiple = rng.choice((1, 1, 2))
    least = multiple * rng.randint(1, max(1, share // 2 // multiple))
    return NodeRange(min=least, max=least + multiple * rng.randint(1, share), multiple_of=multiple)


def _fixed(rng: Random, share: int) -> NodeRange:
    nodes = rng.randint(1, share)
    return NodeRange(min=nodes, max=nodes)


def _program(rng: Random, *, trainer: bool, short: bool) -> Program:
    step_s = rng.choice((0.5, 1.0, 5.0))
    return Program(
        step_s=step_s,
        steps=int(rng.uniform(1800.0, 6 * 3600.0) / step_s) if short else 10_000_000,
        save_s=rng.choice((1.0, 5.0, 20.0)),
        restore_s=rng.choice((1.0, 5.0, 20.0)),
        warm_s=rng.choice((2.0, 5.0, 20.0)),
        meet_s=rng.choice((0.2, 2.0)),
        collective_timeout_s=rng.choice((300.0, 600.0)),
        uses_trainer=trainer,
    )


def _retry(rng: Random, *, trainer: bool) -> RetryPolicy:
    # A script without the trainer library tells no progress: its budget is what keeps it from looping.
    if rng.random() < 0.3 or not trainer:
        return RetryPolicy()
    return RetryPolicy(max_failures=1_000, max_without_progress=rng.choice((5, 50)))


# -- faults -------------------------------------------------------------------------------------


def draw_plan(seed: int, setup: Setup, size: Size) -> tuple[Planned, ...]:
    """The faults of a seed, in order of time."""
    rng = Chance(seed).of("swarm faults")
    names = rng.sample(sorted(KINDS), max(1, round(len(KINDS) * KINDS_SHARE)))
    weights = [rng.expovariate(1.0) for _ in names]
    count = rng.randint(*FAULTS)
    jobs = [each.spec.name for each in setup.work]
    plan: list[Planned] = []
    while len(plan) < count:
        start = rng.uniform(SETTLE_S, max(SETTLE_S, size.seconds - LAST_S))
        for at in range(min(rng.randint(1, BURST_MAX), count - len(plan))):
            kind = KINDS[rng.choices(names, weights)[0]]
            plan.append(_planned(rng, kind, start, jobs=jobs, nodes=size.nodes, first=at == 0))
    return tuple(sorted(plan, key=lambda each: each.at_s))


def _planned(rng: Random, kind: Kind, start: float, *, jobs: Sequence[str], nodes: int, first: bool) -> Planned:
    upon = rng.choice(list(Phase)) if rng.random() < (0.2 if first else 0.5) else None
    later = 0.0 if first or upon else rng.expovariate(1.0 / 15.0)
    return Planned(
        kind=kind.name,
        target=_target(rng, kind.hits, jobs=jobs, nodes=nodes),
        at_s=round(start + later, 2),
        lasts_s=_length_s(rng, kind.lasts),
        size=_size(rng, kind.sizes),
        upon=upon,
    )


def _target(rng: Random, hits: Hits, *, jobs: Sequence[str], nodes: int) -> str:
    if hits is Hits.NODE:
        if rng.random() < 0.4:
            return f"{rng.choice(jobs)}/{rng.choice((0, rng.randrange(nodes)))}"
        return f"n{rng.randint(1, nodes)}"
    if hits is Hits.COORDINATOR:
        return rng.choice(("leader", "c1", "c2"))
    return rng.choice(jobs) if hits is Hits.JOB else str(hits)


def _length_s(rng: Random, lasts: Lasts) -> float:
    if not lasts.median_s:
        return 0.0
    sigma = log(lasts.p99_s / lasts.median_s) / Z99
    return round(min(lasts.p99_s, lasts.median_s * exp(rng.gauss(0.0, sigma))), 1)


def _size(rng: Random, sizes: tuple[float, float]) -> float:
    low, high = sizes
    if isinstance(low, int) and isinstance(high, int):
        return float(rng.randint(low, high))
    return float(f"{rng.uniform(low, high):.3g}")
