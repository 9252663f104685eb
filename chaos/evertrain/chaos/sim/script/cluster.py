"""Verbs that build a cluster, and those of operators: submit, cancel, drain. Nothing here breaks anything."""

from __future__ import annotations

from evertrain.chaos.sim.script.args import Args, between, duration
from evertrain.chaos.sim.script.errors import Unmet
from evertrain.chaos.sim.script.stage import Stage
from evertrain.chaos.sim.script.verb import Verb
from evertrain.chaos.sim.site import Program
from evertrain.chaos.sim.world import Options
from evertrain.contract.jobspec import CheckpointPolicy, DrillPolicy, JobSpec, NodeRange, RetryPolicy
from evertrain.controlplane.core.events import CheckpointVerb
from evertrain.controlplane.core.ids import NodeName

REGISTER_S = 60.0


async def _nodes(stage: Stage, args: Args) -> None:
    if stage.built:
        raise args.wrong("the cluster is built already; use add-node")
    options = Options(
        nodes=args.read("number of nodes", int),
        coordinators=args.option("coordinators", int, 2),
        seed=args.option("seed", int, 1),
        slots=args.option("slots", int, 8),
        lease_ttl_s=args.option("lease", duration, 10.0),
    )
    args.done()
    world = stage.build(options)

    def registered() -> bool:
        leader = world.leader
        return leader is not None and all(leader.state.contact(NodeName(name)).reported for name in world.nodes)

    if not await stage.until(registered, within_s=REGISTER_S):
        raise Unmet(args.where, f"the nodes did not register within {REGISTER_S:.0f} s")


async def _add_node(stage: Stage, args: Args) -> None:
    name = args.word("name")
    args.done()
    if name in stage.world.nodes:
        raise args.wrong(f"there is a node {name}")
    stage.world.add_node(name).start_agent()


async def _submit(stage: Stage, args: Args) -> None:
    what = args.brief
    name = args.word("name")
    least, most = args.option("nodes", between, (1, 1))
    plain = args.flag("plain")
    spec = JobSpec(
        name=name,
        script="/train.py",
        nodes=NodeRange(min=least, max=most, multiple_of=args.option("multiple", int, 1)),
        nproc_per_node=args.option("workers", int, 1),
        checkpoint=CheckpointPolicy(
            dir="" if plain else "/checkpoints",
            every_steps=args.option("every", int, 100),
            keep=args.option("keep", int, 3),
            memory_every_steps=args.option("copy", int, 0),
            peer_copies=args.flag("peers"),
            drill=DrillPolicy(every_s=args.option("drill", duration, 0.0)),
        ),
        retry=RetryPolicy(
            max_failures=args.option("max-failures", int, 10),
            max_without_progress=args.option("max-without-progress", int, 3),
        ),
        stop_grace_s=args.option("grace", duration, 10.0),
        prepare_timeout_s=args.option("prepare", duration, 120.0),
    )
    program = Program(
        step_s=args.option("step", duration, 1.0),
        steps=args.option("steps", int, 10_000_000),
        save_s=args.option("save", duration, 2.0),
        restore_s=args.option("restore", duration, 2.0),
        warm_s=args.option("warm", duration, 4.0),
        collective_timeout_s=args.option("collective-timeout", duration, 600.0),
        uses_trainer=not plain,
        forgets=args.flag("forgets"),
        fails_at=args.option("fails-at", int, 0),
    )
    args.done()
    await stage.asked(what, stage.world.submit(spec, program))


async def _cancel(stage: Stage, args: Args) -> None:
    what = args.brief
    job, reason = args.word("job"), args.option("reason", str, "")
    args.done()
    await stage.asked(what, stage.world.cancel(job, reason))


async def _drain(stage: Stage, args: Args) -> None:
    what = args.brief
    node = args.word("node")
    reason, deadline_s = args.option("reason", str, "fan is loud"), args.option("deadline", duration, 600.0)
    args.done()
    await stage.asked(what, stage.world.drain(node, reason, deadline_s))


async def _undrain(stage: Stage, args: Args) -> None:
    what = args.brief
    node = args.word("node")
    args.done()
    await stage.asked(what, stage.world.undrain(node))


async def _rollback(stage: Stage, args: Args) -> None:
    what = args.brief
    job, (step, generation) = args.word("job"), args.read("step", _label)
    reason = args.option("reason", str, "loss is NaN")
    args.done()
    await stage.asked(what, stage.world.roll_back(job, step, generation, reason))


async def _checkpoint(stage: Stage, args: Args) -> None:
    what = args.brief
    verb = CheckpointVerb(args.one_of("verb", [str(each) for each in CheckpointVerb]))
    job, (step, generation) = args.word("job"), args.read("step", _label)
    destination = args.option("to", str, "")
    args.done()
    await stage.asked(what, stage.world.ask_checkpoint(verb, job, step, generation, destination))


def _label(text: str) -> tuple[int, int]:
    """``200`` or ``200@3``."""
    step, _, generation = text.partition("@")
    return int(step), int(generation or 0)


async def _repeat(stage: Stage, args: Args) -> None:
    args.done()
    request = stage.last_request
    if request is None:
        raise args.wrong("no operator has asked for anything yet")
    await stage.asked("repeat", stage.world.desk.ask(request))


VERBS = (
    Verb("nodes COUNT [coordinators=2] [lease=10s] [slots=8] [seed=1]", "Build a cluster; comes first.", _nodes),
    Verb("add-node NAME", "Rack one more node and start its agent.", _add_node),
    Verb(
        "submit JOB [nodes=2..4] [multiple=1] [workers=1] [every=100] [keep=3] [copy=N] [peers] [drill=1h] [step=1s] "
        "[forgets] [steps=N] [save=2s] [restore=2s] [warm=4s] [collective-timeout=10m] [fails-at=N] [max-failures=10] "
        "[max-without-progress=3] [grace=10s] [prepare=2m] [plain]",
        "Submit a job; plain: its script does not use the trainer library, so it saves nothing.",
        _submit,
    ),
    Verb("cancel JOB [reason=...]", "Cancel a job.", _cancel),
    Verb("drain NODE [deadline=10m] [reason=...]", "Have a node left by its job.", _drain),
    Verb("undrain NODE", "Give a drained node back.", _undrain),
    Verb("rollback JOB STEP[@GEN] [reason=...]", "Have a job go on from an older checkpoint.", _rollback),
    Verb("checkpoint verify|pin|unpin|export|drill JOB STEP[@GEN] [to=...]", "Ask that of a checkpoint.", _checkpoint),
    Verb("repeat", "Send the last request again, under the same id.", _repeat),
)
