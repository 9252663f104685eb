"""What a generation is allowed to restore from memory, and how what it did restore is counted and told."""

from __future__ import annotations

from dataclasses import replace

from evertrain.contract.beacon import Tier
from evertrain.contract.launch import GangPlace
from evertrain.controlplane.core.checkpoint import CheckpointState
from evertrain.controlplane.core.ids import NodeName
from evertrain.controlplane.core.orders import orders_for
from support.saving import saving
from support.world import World


def place(world: World, node: str = "n1") -> GangPlace:
    """What the node is told of its part in the present generation."""
    found = orders_for(world.state, NodeName(node))[0].place
    assert found is not None
    return found


def restore(world: World, step: int, tier: Tier) -> None:
    """All nodes tell what the present generation was restored from."""
    job = world.job()
    assert job.gang is not None
    for name in job.gang.nodes:
        node = world.nodes[name]
        told = replace(node.launchers[job.id], step=step, restored_step=step, restored_from=tier.value)
        node.launchers[job.id] = told
        world.report(node)
    world.settle()


def broken_at(step: int) -> World:
    """Generation 2 of a job that saved step 10 and lost a worker at ``step``."""
    world = saving()
    world.train(10, save=True)
    world.train(step)
    world.fail_worker("n2")
    return world


def test_copies_of_all_generations_may_be_restored_as_long_as_nothing_speaks_against_it() -> None:
    world = broken_at(17)
    assert place(world).memory_since == 1
    world.train(18)
    world.fail_worker("n1")
    assert place(world).memory_since == 1


def test_what_was_really_restored_counts_and_is_told() -> None:
    world = broken_at(17)
    assert world.job().steps_lost == 7, "as far as anybody knows"
    restore(world, 16, Tier.MEMORY)
    world.train(17)
    job = world.job()
    assert (job.steps_lost, job.history[-1].steps_lost, job.history[-1].restored_step) == (1, 1, 16)
    assert "generation 2 restored step 16 from memory; the newest checkpoint has step 10" in world.story()


def test_a_generation_that_ends_before_its_first_step_counts_what_it_restored_as_well() -> None:
    world = broken_at(17)
    restore(world, 16, Tier.PEER)
    world.fail_worker("n1")
    world.advance(60.0)
    job = world.job()
    assert [each.restored_from for each in job.history[:2]] == ["", "peer"]
    assert job.history[1].last_step == 16
    assert job.steps_lost == 1 + 6, "one in generation 2, and 6 as long as generation 3 has told nothing"


def test_a_checkpoint_that_was_ordered_and_not_loaded_is_not_proven() -> None:
    world = broken_at(17)
    restore(world, 16, Tier.MEMORY)
    world.train(17)
    assert world.checkpoint(10).state is not CheckpointState.PROVEN
    world.fail_worker("n1")
    restore(world, 10, Tier.STORAGE)
    world.train(11)
    assert world.checkpoint(10).state is CheckpointState.PROVEN


def test_a_rollback_makes_all_copies_of_before_void() -> None:
    world = broken_at(17)
    world.train(20, save=True)
    assert world.roll_back(10).refusal is None
    gang = world.job().gang
    assert gang is not None
    assert place(world).memory_since == gang.generation == 3
    world.train(12)
    world.fail_worker("n1")
    assert place(world).memory_since == 3, "those of generation 3 may be taken, those before never again"


def test_copies_from_which_a_script_fails_at_once_are_not_used_again() -> None:
    world = broken_at(17)
    restore(world, 16, Tier.MEMORY)
    world.fail_worker("n1", code=1, message="ValueError: loss is NaN")
    assert world.job().memory_since == 3
    assert "generation 2 completed no step from copies in memory: they are not used again" in world.story()


def test_a_kill_before_the_first_step_says_nothing_of_the_copies() -> None:
    world = broken_at(17)
    restore(world, 16, Tier.MEMORY)
    world.fail_worker("n1")
    assert world.job().memory_since == 1


def test_each_node_is_told_who_keeps_its_copies_when_the_job_wants_that() -> None:
    world = saving(memory_every_steps=1, peer_copies=True)
    assert [place(world, node).copies_to for node in ("n1", "n2")] == [1, 0]
    assert place(saving(memory_every_steps=1)).copies_to is None


def test_who_replaces_a_node_takes_its_rank_and_the_others_keep_theirs() -> None:
    world = saving("n1", "n2", "n3", "n4", least=3, most=3)
    world.kill_node("n1")
    world.advance(60.0)
    assert world.members() == ("n4", "n2", "n3")
