"""The consumption audit: what counts as kept, and what it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from evertrain.trainer.data import BadLog, ConsumptionLog, ElasticSampler, GlobalOrder, Plan, audit, read_plan

ORDER = GlobalOrder(length=100, batch=6, seed=3)


def _run(folder: Path, generation: int, steps: range, world_size: int) -> None:
    """What a gang of ``world_size`` would log in ``steps``."""
    for rank in range(world_size):
        log = ConsumptionLog(folder, rank=rank, generation=generation)
        sampler = ElasticSampler(100, 6, seed=3, rank=rank, world_size=world_size)
        for step, ids in sampler.steps(steps.start, steps.stop):
            log.record(step, ids)
        log.close()


def test_an_undisturbed_run_is_exact(tmp_path: Path) -> None:
    _run(tmp_path, 1, range(20), 4)
    report = audit(tmp_path, Plan(order=ORDER, steps=20))
    assert report.exact
    assert (report.generations, report.steps, report.samples, report.redone_steps) == ((1,), 20, 120, 0)


def test_kills_and_resizes_are_exact_and_lost_steps_are_counted_as_redone(tmp_path: Path) -> None:
    _run(tmp_path, 1, range(0, 27), 4)
    _run(tmp_path, 2, range(20, 33), 3)
    _run(tmp_path, 5, range(30, 45), 4)
    report = audit(tmp_path, Plan(order=ORDER, steps=45))
    assert report.exact
    assert (report.steps, report.samples, report.redone_steps) == (45, 270, 7 + 3)


def test_a_later_rollback_also_voids_the_generation_before_the_last(tmp_path: Path) -> None:
    _run(tmp_path, 1, range(0, 30), 2)
    _run(tmp_path, 2, range(20, 25), 2)
    _run(tmp_path, 3, range(10, 40), 2)
    report = audit(tmp_path, Plan(order=ORDER, steps=40))
    assert report.exact
    assert report.redone_steps == 20 + 5


def test_ranks_of_a_killed_generation_that_got_unequally_far_do_not_matter(tmp_path: Path) -> None:
    log = ConsumptionLog(tmp_path, rank=0, generation=1)
    other = ConsumptionLog(tmp_path, rank=1, generation=1)
    for step in range(12):
        log.record(step, ORDER.ids(step, 0, 3))
        if step < 11:
            other.record(step, ORDER.ids(step, 3, 6))
    with open(tmp_path / "g000001-rank00001.jsonl", "ab") as file:
        file.write(b'{"step":11,"id')
    _run(tmp_path, 2, range(10, 15), 2)
    assert audit(tmp_path, Plan(order=ORDER, steps=15)).exact


def test_a_wrong_sample_is_named_as_duplicate_and_missing(tmp_path: Path) -> None:
    log = ConsumptionLog(tmp_path, rank=0, generation=1)
    planned = ORDER.ids(0)
    log.record(0, [planned[1], *planned[1:]])
    report = audit(tmp_path, Plan(order=ORDER, steps=1))
    assert not report.exact
    assert report.findings[0].duplicates == (planned[1],)
    assert report.findings[0].missing == (planned[0],)


def test_a_sample_that_was_used_in_spite_of_its_quarantine_is_too_many(tmp_path: Path) -> None:
    bad = ORDER.ids(7)[2]
    _run(tmp_path, 1, range(0, 12), 2)
    report = audit(tmp_path, Plan(order=ORDER.without([bad], from_step=7), steps=12))
    assert [(found.step, found.duplicates) for found in report.findings] == [(7, (bad,))]
    assert audit(tmp_path, Plan(order=ORDER.without([bad], from_step=8), steps=12)).exact


def test_a_step_that_nobody_took_is_missing(tmp_path: Path) -> None:
    _run(tmp_path, 1, range(0, 10), 2)
    _run(tmp_path, 2, range(11, 13), 2)
    report = audit(tmp_path, Plan(order=ORDER, steps=14))
    assert [found.step for found in report.findings] == [10, 13]
    assert report.missing == 12


def test_a_step_beyond_the_plan_is_too_many(tmp_path: Path) -> None:
    _run(tmp_path, 1, range(0, 11), 1)
    assert audit(tmp_path, Plan(order=ORDER, steps=10)).duplicates == 6


def test_a_saved_plan_is_read_back_equal(tmp_path: Path) -> None:
    plan = Plan(order=ORDER, steps=10)
    plan.save(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


def test_nothing_logged_proves_nothing(tmp_path: Path) -> None:
    assert not audit(tmp_path, Plan(order=ORDER, steps=1)).exact


def test_a_damaged_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "g000001-rank00000.jsonl").write_text('{"step":0,"ids":[1]}\n{"step":1,\n{"step":2,"ids":[1]}\n')
    with pytest.raises(BadLog, match=r"rank00000\.jsonl:2"):
        audit(tmp_path, Plan(order=ORDER, steps=1))
