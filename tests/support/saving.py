"""Jobs that save, on the core alone: what tests of checkpoints begin with."""

from __future__ import annotations

from dataclasses import replace

from evertrain.contract.jobspec import CheckpointPolicy
from evertrain.controlplane.core.policy import Policy
from support.world import World, a_spec


def a_world(*nodes: str, **policy: object) -> World:
    world = World(policy=replace(Policy(), **policy))  # type: ignore[arg-type]
    world.add(*(nodes or ("n1", "n2", "n3")))
    return world


def saving(*nodes: str, least: int = 2, most: int = 2, **checkpoint: object) -> World:
    """A job on two of three nodes that runs, has no checkpoint yet, and saves as the test says."""
    world = a_world(*nodes)
    policy = CheckpointPolicy(dir="/checkpoints", every_steps=10)
    world.submit(a_spec(least=least, most=most, checkpoint=replace(policy, **checkpoint)))  # type: ignore[arg-type]
    world.train(1)
    return world
