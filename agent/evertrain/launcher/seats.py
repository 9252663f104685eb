"""The environment that a worker gets: torchrun's contract and Evertrain's. Pure.

torchrun documents its own at https://docs.pytorch.org/docs/stable/elastic/run.html.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from evertrain.contract import environ
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.launch import GangPlace, LaunchFile

ROLE: Final = "default"
"""torchrun's own name for the role of workers when none is given."""
_ABSENT_HAS_A_MEANING: Final = (
    environ.PROGRESS,
    environ.CHECKPOINT_DIR,
    environ.CHECKPOINT_EVERY,
    environ.REPRODUCIBLE,
    environ.RESTORE,
    environ.RESTORE_DIGEST,
    environ.RESTORE_MEMORY,
    environ.COPIES,
    environ.COPIES_TO,
    environ.COPY_EVERY,
    environ.TRAIL_STEPS,
    environ.DRILL_STEPS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One worker's numbers in the gang, in torchrun's words."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    group_rank: int
    group_world_size: int
    role_rank: int
    role_world_size: int
    master_addr: str
    master_port: int
    restart_count: int


def seat_at(place: GangPlace, local_rank: int, *, nproc: int) -> Seat:
    """One worker's numbers for a command, without torch. There is one role, so its ranks are the gang's."""
    return Seat(
        rank=place.rank_first + local_rank,
        local_rank=local_rank,
        world_size=place.world_size,
        local_world_size=nproc,
        group_rank=place.group_rank,
        group_world_size=place.group_world_size,
        role_rank=place.rank_first + local_rank,
        role_world_size=place.world_size,
        master_addr=place.master_addr,
        master_port=place.master_port,
        restart_count=place.restart_count,
    )


def job_environ(launch: LaunchFile, *, inherited: Mapping[str, str], beacon: str, progress: str) -> dict[str, str]:
    """What is the same for all workers of all generations; the spare imports under it, as a fresh worker would.

    ``progress`` is the path of the progress slots, or empty.
    """
    spec = launch.spec
    result = {**inherited, **spec.env}
    result["PYTHONPATH"] = _joined_paths(spec.env.get("PYTHONPATH", ""), inherited.get("PYTHONPATH", ""))
    if spec.nproc_per_node > 1:  # as torchrun: workers that share a machine must not each use all its cores
        result.setdefault("OMP_NUM_THREADS", "1")
    if spec.reproducible_microbatches:
        # Sums within a kernel depend on it, so no node may bring a number of its own.
        result["OMP_NUM_THREADS"] = spec.env.get("OMP_NUM_THREADS", "1")
    result.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    for name in _ABSENT_HAS_A_MEANING:
        result.pop(name, None)
    result |= {
        environ.BEACON: beacon,
        environ.JOB: spec.name,
        environ.JOB_ID: launch.job_id,
        environ.NODE: launch.node,
        environ.OWNER: launch.owner,
        environ.CHECKPOINT_KEEP: str(spec.checkpoint.keep),
    }
    if progress:
        result[environ.PROGRESS] = progress
    return result | _training_environ(spec)


def _training_environ(spec: JobSpec) -> dict[str, str]:
    """What the trainer library is told of the specification."""
    result: dict[str, str] = {}
    if spec.checkpoint.dir:
        result[environ.CHECKPOINT_DIR] = spec.checkpoint.dir
    if spec.checkpoint.auto:
        result[environ.CHECKPOINT_EVERY] = "auto"
    elif spec.checkpoint.every_steps:
        result[environ.CHECKPOINT_EVERY] = str(spec.checkpoint.every_steps)
    if spec.reproducible_microbatches:
        result[environ.REPRODUCIBLE] = str(spec.reproducible_microbatches)
    if spec.checkpoint.every_s:
        result[environ.CHECKPOINT_EVERY_S] = repr(spec.checkpoint.every_s)
    if spec.checkpoint.memory_auto:
        result[environ.COPY_EVERY] = "auto"
    elif spec.checkpoint.memory_every_steps:
        result[environ.COPY_EVERY] = str(spec.checkpoint.memory_every_steps)
    if spec.checkpoint.drill.steps:
        result[environ.TRAIL_STEPS] = str(spec.checkpoint.drill.steps)
    if spec.drill_steps:
        result[environ.DRILL_STEPS] = str(spec.drill_steps)
    return result


def _joined_paths(*lists: str) -> str:
    """Search paths one after the other, each once."""
    return os.pathsep.join(dict.fromkeys(path for each in lists for path in each.split(os.pathsep) if path))


def worker_environ(
    launch: LaunchFile, seat: Seat, *, generation: int, place: GangPlace, error_file: str, agent_store: bool
) -> dict[str, str]:
    """What one worker of one generation gets on top of :func:`job_environ`.

    ``agent_store``: the store at MASTER_PORT is served already, so rank 0 must not serve it.
    """
    result = {
        "RANK": str(seat.rank),
        "LOCAL_RANK": str(seat.local_rank),
        "WORLD_SIZE": str(seat.world_size),
        "LOCAL_WORLD_SIZE": str(seat.local_world_size),
        "GROUP_RANK": str(seat.group_rank),
        "GROUP_WORLD_SIZE": str(seat.group_world_size),
        "ROLE_RANK": str(seat.role_rank),
        "ROLE_NAME": ROLE,
        "ROLE_WORLD_SIZE": str(seat.role_world_size),
        "MASTER_ADDR": seat.master_addr,
        "MASTER_PORT": str(seat.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(seat.restart_count),
        "TORCHELASTIC_MAX_RESTARTS": str(launch.spec.retry.max_failures),
        "TORCHELASTIC_RUN_ID": launch.job_id,
        "TORCHELASTIC_USE_AGENT_STORE": str(agent_store),
        "TORCHELASTIC_ERROR_FILE": error_file,
        environ.GENERATION: str(generation),
    }
    if launch.devices:
        result["CUDA_VISIBLE_DEVICES"] = ",".join(launch.devices[seat.local_rank])
    if place.mtbf_s:
        result[environ.MTBF_S] = repr(place.mtbf_s)
    if place.restore_path:
        result[environ.RESTORE] = place.restore_path
    if place.restore_digest:
        result[environ.RESTORE_DIGEST] = place.restore_digest
    if place.memory_since:
        result[environ.RESTORE_MEMORY] = str(place.memory_since)
    if place.copies_to is not None:
        result[environ.COPIES_TO] = str(place.copies_to)
    return result
