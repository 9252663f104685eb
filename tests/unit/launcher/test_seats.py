"""The environment of workers, and that torch elastic's view of a place gives the same seats as ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evertrain.contract import environ
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec
from evertrain.contract.launch import GangPlace
from evertrain.launcher.seats import job_environ, seat_at, worker_environ
from support.launcher import launch_file

PLACE = GangPlace(
    group_rank=1, group_world_size=3, rank_first=4, world_size=12, master_addr="h", master_port=5, restart_count=2
)


def test_a_seat_is_counted_from_the_first_rank_of_the_node() -> None:
    seat = seat_at(PLACE, 3, nproc=4)
    assert (seat.rank, seat.role_rank, seat.local_rank, seat.local_world_size) == (7, 7, 3, 4)
    assert (seat.world_size, seat.role_world_size, seat.group_rank, seat.group_world_size) == (12, 12, 1, 3)


@pytest.mark.torch
def test_torch_elastics_group_gives_the_same_seats() -> None:
    from torch.distributed.elastic.agent.server.api import WorkerState

    from evertrain.launcher.elastic import placed_agent, seat_in

    agent = placed_agent(launch_file(JobSpec(name="j", script="x.py", nproc_per_node=4)), PLACE)
    assert agent.run().state is WorkerState.HEALTHY
    group = agent.get_worker_group()
    seats = [seat_in(group, local_rank, restart_count=2) for local_rank in range(4)]
    assert seats == [seat_at(PLACE, local_rank, nproc=4) for local_rank in range(4)]
    handler = group.spec.rdzv_handler
    assert (handler.get_run_id(), handler.num_nodes_waiting(), handler.is_closed()) == ("j1", 0, False)
    assert handler.use_agent_store


def worker(place: GangPlace, spec: JobSpec, *, devices: tuple[tuple[str, ...], ...] = ()) -> dict[str, str]:
    """What the first worker gets on top of the job's environment."""
    seat = seat_at(place, 0, nproc=1)
    launch = launch_file(spec, devices=devices)
    return worker_environ(launch, seat, generation=9, place=place, error_file="/e", agent_store=True)


def test_what_is_restored_from_is_absent_on_a_fresh_start() -> None:
    spec = JobSpec(name="j", command=("x",))
    fresh = worker(PLACE, spec)
    assert not {environ.RESTORE, environ.RESTORE_DIGEST, "CUDA_VISIBLE_DEVICES"} & set(fresh)


def test_reproducible_mode_is_told_and_no_node_brings_a_number_of_threads_of_its_own() -> None:
    spec = JobSpec(name="j", command=("x",), reproducible_microbatches=12)

    def threads(spec: JobSpec, **inherited: str) -> str:
        got = job_environ(launch_file(spec), inherited=inherited, beacon="/b", progress="")
        assert got[environ.REPRODUCIBLE] == "12"
        return got["OMP_NUM_THREADS"]

    assert threads(spec, OMP_NUM_THREADS="7") == "1"
    assert threads(replace(spec, env={"OMP_NUM_THREADS": "4"}), OMP_NUM_THREADS="7") == "4"
    plain = job_environ(launch_file(JobSpec(name="j", command=("x",))), inherited={}, beacon="/b", progress="")
    assert environ.REPRODUCIBLE not in plain


def test_devices_are_handed_out_by_local_rank() -> None:
    got = worker(PLACE, JobSpec(name="j", command=("x",)), devices=(("0", "1"), ("2", "3")))
    assert got["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert worker(PLACE, JobSpec(name="j", command=("x",)), devices=((),))["CUDA_VISIBLE_DEVICES"] == ""


def test_the_jobs_environment_wins_over_the_launchers_and_loses_to_the_contract() -> None:
    spec = JobSpec(
        name="j",
        command=("x",),
        env={"A": "job", environ.OWNER: "x", "PYTHONPATH": "/mine:/ours", environ.RESTORE: "/old"},
        checkpoint=CheckpointPolicy(dir="/ckpt", every_steps=5),
    )
    inherited = {"A": "launcher", "B": "b", "PYTHONPATH": "/ours", environ.PROGRESS: "/another"}
    got = job_environ(launch_file(spec), inherited=inherited, beacon="/b", progress="")
    assert (got["A"], got["B"], got[environ.OWNER]) == ("job", "b", "j1@n1")
    assert got["PYTHONPATH"] == "/mine:/ours"
    assert (got[environ.CHECKPOINT_DIR], got[environ.CHECKPOINT_EVERY], got[environ.CHECKPOINT_KEEP]) == (
        "/ckpt",
        "5",
        "3",
    )
    assert not {environ.RESTORE, environ.PROGRESS, environ.CHECKPOINT_EVERY_S} & set(got)


def test_a_job_whose_interval_is_chosen_is_told_so_and_how_long_its_gang_runs() -> None:
    wanted = CheckpointPolicy(dir="/ckpt", auto=True, every_s=600.0)
    got = job_environ(
        launch_file(JobSpec(name="j", command=("x",), checkpoint=wanted)), inherited={}, beacon="/b", progress=""
    )
    assert (got[environ.CHECKPOINT_EVERY], got[environ.CHECKPOINT_EVERY_S]) == ("auto", "600.0")
    spec = JobSpec(name="j", command=("x",))
    assert worker(replace(PLACE, mtbf_s=86_400.0), spec)[environ.MTBF_S] == "86400.0"
    assert environ.MTBF_S not in worker(PLACE, spec)


def test_a_worker_is_told_how_often_to_copy_and_which_copies_it_may_restore() -> None:
    def job(wanted: CheckpointPolicy) -> dict[str, str]:
        spec = JobSpec(name="j", command=("x",), checkpoint=wanted)
        return job_environ(launch_file(spec), inherited={environ.COPY_EVERY: "3"}, beacon="/b", progress="")

    assert job(CheckpointPolicy(dir="/ckpt", memory_every_steps=5))[environ.COPY_EVERY] == "5"
    assert job(CheckpointPolicy(dir="/ckpt", memory_auto=True))[environ.COPY_EVERY] == "auto"
    assert environ.COPY_EVERY not in job(CheckpointPolicy(dir="/ckpt"))
    spec = JobSpec(name="j", command=("x",))
    told = worker(replace(PLACE, memory_since=4, copies_to=0), spec)
    assert (told[environ.RESTORE_MEMORY], told[environ.COPIES_TO]) == ("4", "0")
    assert not {environ.RESTORE_MEMORY, environ.COPIES_TO} & set(worker(PLACE, spec))


@pytest.mark.parametrize(
    ("nproc", "given", "threads"), [(1, {}, None), (2, {}, "1"), (2, {"OMP_NUM_THREADS": "8"}, "8")]
)
def test_workers_that_share_a_machine_get_one_thread_each_unless_told_otherwise(
    nproc: int, given: dict[str, str], threads: str | None
) -> None:
    spec = JobSpec(name="j", command=("x",), nproc_per_node=nproc, env=given)
    got = job_environ(launch_file(spec), inherited={}, beacon="/b", progress="/p")
    assert (got.get("OMP_NUM_THREADS"), got[environ.PROGRESS]) == (threads, "/p")
