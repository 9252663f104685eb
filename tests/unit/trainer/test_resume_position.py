"""The position after a resume, as it went wrong for others: in a later epoch, mid-step, at other world sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from evertrain.trainer.data import ConsumptionLog, ElasticSampler, Plan, audit

SAMPLES, BATCH, SAVE_EVERY = 1000, 10, 20
STEPS = 3 * SAMPLES // BATCH


def _generation(folder: Path, number: int, start: int, world_size: int, killed_at: int) -> int:
    """Train from ``start`` until ``killed_at`` samples of the job are logged; the step of the last save."""
    logged = start * BATCH
    ranks = range(world_size)
    logs = [ConsumptionLog(folder, rank=rank, generation=number) for rank in ranks]
    samplers = [ElasticSampler(SAMPLES, BATCH, seed=8, rank=rank, world_size=world_size) for rank in ranks]
    step = start
    while logged < killed_at and step < STEPS:
        for log, sampler in zip(logs, samplers, strict=True):
            ids = sampler.ids(step)
            if logged >= killed_at:
                break  # this rank did not get to it any more
            log.record(step, ids)
            logged += len(ids)
        step += 1
    for log in logs:
        log.close()
    return (logged // BATCH) // SAVE_EVERY * SAVE_EVERY


def test_a_kill_at_sample_437_of_epoch_2_and_world_sizes_4_3_6_use_each_sample_once_per_epoch(tmp_path: Path) -> None:
    saved = _generation(tmp_path, 1, 0, 4, killed_at=SAMPLES + 437)
    assert saved == 140
    saved = _generation(tmp_path, 2, saved, 3, killed_at=2 * SAMPLES + 111)
    assert saved == 200
    _generation(tmp_path, 3, saved, 6, killed_at=3 * SAMPLES)
    order = ElasticSampler(SAMPLES, BATCH, seed=8, rank=0, world_size=1).order
    report = audit(tmp_path, Plan(order=order, steps=STEPS))
    assert report.exact
    assert report.samples == 3 * SAMPLES
    # Only steps after the last save were trained on twice: 140 to 143, and 200 to 211.
    assert report.redone_steps == 4 + 12
    for epoch in range(3):
        steps = range(epoch * SAMPLES // BATCH, (epoch + 1) * SAMPLES // BATCH)
        assert Counter(sample for step in steps for sample in order.ids(step)) == Counter(range(SAMPLES))
