"""Whatever kills, resizes and quarantines come in whatever order, the ledger proves that each sample came exactly once.

The jobs here train nothing: they hand out, fetch ahead, log, save, die and
resume. Beside the ledger a plain model of what a job is keeps its own history.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evertrain.trainer.data import ConsumptionLog, ElasticSampler, ElasticShards, Plan, ShardOrder, ShardPlan, audit

LENGTH, BATCH, SEED = 61, 8, 4
FETCHED_AHEAD = 3
COUNTS = (7, 3, 9, 5, 8, 4, 6, 10, 9)
SHARDS = ShardOrder(counts=COUNTS, batch=8, streams=8, seed=SEED)

train = st.tuples(st.just("train"), st.integers(1, 9))
save = st.tuples(st.just("save"), st.just(0))
die = st.tuples(st.just("die"), st.integers(1, 8))
find = st.tuples(st.just("find"), st.integers(0, LENGTH - 1))
events = st.lists(st.one_of(train, train, save, die, find), min_size=1, max_size=30)


class Job:
    """A job on samples: generations of ranks, each with its sampler, its loader that fetches ahead, and its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0
        self.step = 0
        self.kept: dict[int, list[int]] = {}
        self.saved: tuple[int, dict[str, Any] | None] = (0, None)
        self.since: dict[int, int] = {}
        self.begin(2)

    def begin(self, world_size: int) -> None:
        """A new generation from the last checkpoint."""
        self.generation += 1
        self.step, state = self.saved
        self.kept = {step: ids for step, ids in self.kept.items() if step < self.step}
        self.samplers = [
            ElasticSampler(LENGTH, BATCH, seed=SEED, rank=rank, world_size=world_size) for rank in range(world_size)
        ]
        if state is not None:
            for sampler in self.samplers:
                sampler.load_state_dict(state)
        self.since = {entry.sample: entry.from_step for entry in self.samplers[0].order.quarantine}
        self.loaders = [_ahead(iter(sampler.batches(self.step, 10_000))) for sampler in self.samplers]
        self.logs = [ConsumptionLog(self.folder, rank=rank, generation=self.generation) for rank in range(world_size)]

    def do(self, what: str, number: int) -> None:
        """One event."""
        match what:
            case "train":
                for _ in range(number):
                    self.train()
            case "save":
                self.saved = (self.step, self.samplers[0].state_dict())
            case "die":
                self.end(ranks_ahead=number % 3)
                self.begin(number)
            case "find":
                handed_out = max(self.step, *(sampler.handed_out for sampler in self.samplers))
                for sampler in self.samplers:  # a process that has not begun may ask for any step
                    sampler.quarantine([number], from_step=handed_out if sampler.handed_out else 0)
                self.since.setdefault(number, handed_out)

    def train(self) -> None:
        """One step of all ranks."""
        ids = []
        for loader, log in zip(self.loaders, self.logs, strict=True):
            share = next(loader)
            log.record(self.step, share)
            ids += share
        self.kept[self.step] = ids
        self.step += 1

    def end(self, *, ranks_ahead: int) -> None:
        """Killed, while some ranks had written down one step more."""
        for number, (loader, log) in enumerate(zip(self.loaders, self.logs, strict=True)):
            if number < ranks_ahead:
                log.record(self.step, next(loader))
            log.close()


def _ahead(batches: Iterator[list[int]]) -> Iterator[list[int]]:
    """As a loader with worker processes does."""
    queue: list[list[int]] = []
    while True:
        while len(queue) <= FETCHED_AHEAD:
            queue.append(next(batches))
        yield queue.pop(0)


@settings(deadline=None, max_examples=150)
@given(happened=events)
def test_any_history_of_a_map_style_job_is_exactly_once(happened: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        job = Job(Path(name))
        for what, number in happened:
            job.do(what, number)
        job.do("train", 1)
        job.end(ranks_ahead=0)
        report = audit(job.folder, Plan(order=job.samplers[0].order, steps=job.step))
    assert report.exact, report.findings
    assert report.samples == job.step * BATCH
    assert sorted(job.kept) == list(range(job.step))
    assert not any(job.since.get(sample, step + 1) <= step for step, ids in job.kept.items() for sample in ids)
    per_epoch = LENGTH // BATCH
    for epoch in range(job.step // per_epoch + 1):
        seen = Counter(
            sample
            for step in range(epoch * per_epoch, min((epoch + 1) * per_epoch, job.step))
            for sample in job.kept[step]
        )
        if len(job.since) <= (LENGTH - per_epoch * BATCH) // 2:
            assert max(seen.values(), default=1) == 1
        else:  # more are left out than there are to take their places
            assert sum(seen.values()) - len(seen) <= len(job.since)


@settings(deadline=None, max_examples=100)
@given(happened=events)
def test_any_history_of_a_job_on_shards_is_exactly_once(happened: list[tuple[str, int]]) -> None:
    bases = [sum(COUNTS[:shard]) for shard in range(len(COUNTS))]

    def read(shard: int, start: int) -> Iterator[int]:
        return iter(range(bases[shard] + start, bases[shard] + COUNTS[shard]))

    order, step, saved, generation, world_size = SHARDS, 0, (0, SHARDS), 1, 2
    with tempfile.TemporaryDirectory() as name:
        for what, number in [*happened, ("train", 1)]:
            match what:
                case "train":
                    for rank in range(world_size):
                        log = ConsumptionLog(Path(name), rank=rank, generation=generation)
                        shards = ElasticShards(order, rank=rank, world_size=world_size)
                        for at, drawn in shards.steps(read, step, step + number):
                            assert all(sample == value for sample, value in drawn)
                            log.record(at, [sample for sample, _ in drawn])
                        log.close()
                    step += number
                case "save":
                    saved = (step, order)
                case "die":
                    generation, world_size = generation + 1, number
                    step, order = saved
                case "find":
                    order = order.without([number % sum(COUNTS)], from_step=step)
        report = audit(Path(name), ShardPlan(order=order, steps=step))
    assert report.exact, report.findings
    seen: Counter[tuple[int, int]] = Counter()
    for stream in range(order.streams):
        for place, sample in order.stream_from(stream, 0):
            seen[place.epoch, sample] += 1
            if place.epoch == 3:
                break
    assert max(seen.values()) == 1, "no stream's epoch has a sample twice, nor two streams the same one"
