"""Verbs that let time pass, look, and hold the cluster to its promises. They change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from evertrain.chaos.sim.script.args import Args, duration
from evertrain.chaos.sim.script.errors import Unmet
from evertrain.chaos.sim.script.facts import NODE, conditions, cordoned, holder, running_on, step_of
from evertrain.chaos.sim.script.stage import Stage
from evertrain.chaos.sim.script.story import drawn_together, names
from evertrain.chaos.sim.script.verb import Verb
from evertrain.chaos.sim.world import World
from evertrain.controlplane.core.outlook import outlook
from evertrain.controlplane.core.state import ENDED, Job, JobState

QUIET_S = 10.0
"""Nothing but training for so long: the cluster has settled. Longer than the waits of the decisions that follow."""
SETTLED = ENDED | {JobState.QUEUED, JobState.RUNNING, JobState.SUSPENDED}


async def _wait(stage: Stage, args: Args) -> None:
    seconds = args.read("length", duration)
    args.done()
    await stage.world.sleep(seconds)


async def _quietly(stage: Stage, args: Args) -> None:
    args.done()
    stage.narrator.be_quiet()


async def _stabilize(stage: Stage, args: Args) -> None:
    within_s = args.option("within", duration, 120.0)
    args.done()
    world, narrator = stage.world, stage.narrator
    since = world.site.now()

    def settled() -> bool:
        quiet_s = world.site.now() - max(since, narrator.newest_at)
        return quiet_s >= QUIET_S and all(job.state in SETTLED for job in world.jobs())

    if not await stage.until(settled, within_s=within_s):
        raise Unmet(args.where, f"things did not settle within {within_s:.0f} s")


async def _until(stage: Stage, args: Args) -> None:
    within_s = args.option("within", duration, 600.0)
    wanted = conditions(stage.world, args)
    if not await stage.until(lambda: all(each.holds(stage.world) for each in wanted), within_s=within_s):
        raise Unmet(args.where, f"within {within_s:.0f} s it did not come to: {args.text}")


async def _until_story(stage: Stage, args: Args) -> None:
    within_s = args.option("within", duration, 600.0)
    text = args.word("text")
    args.done()
    since = len(stage.narrator.told)
    if not await stage.until(lambda: bool(stage.narrator.tells(text, since=since)), within_s=within_s):
        raise Unmet(args.where, f"within {within_s:.0f} s nobody said {text!r}")


async def _expect(stage: Stage, args: Args) -> None:
    for each in conditions(stage.world, args):
        if not each.holds(stage.world):
            raise Unmet(args.where, f"expected {each}, found {each.found(stage.world)!r}")


async def _expect_story(stage: Stage, args: Args) -> None:
    text = args.word("text")
    args.done()
    if not stage.narrator.tells(text):
        raise Unmet(args.where, f"expected the story to say {text!r}")


async def _forbid(stage: Stage, args: Args) -> None:
    text = args.word("text")
    args.done()
    found = stage.narrator.tells(text)
    if found:
        raise Unmet(args.where, f"the story must not say {text!r}, and yet: {found.strip()}")


async def _breaks(stage: Stage, args: Args) -> None:
    stage.admit(args.where, args.word("promise"))
    args.done()


# -- show -------------------------------------------------------------------------------------


async def _show(stage: Stage, args: Args) -> None:
    world = stage.world
    match args.one_of("subject", ("job", "nodes", "storage", "leader")):
        case "job":
            lines = _job(world, world.job(args.one_of("job", [job.name for job in world.jobs()])))
        case "nodes":
            lines = _nodes(world)
        case "storage":
            lines = _storage(world)
        case _:
            lines = _leader(world)
    args.done()
    stage.narrator.show(lines)


def _job(world: World, job: Job) -> Iterator[str]:
    line = f"job {job.name}: {job.state}, generation {job.generation}, step {step_of(world, job)}"
    if job.gang is not None:
        line += f", on {drawn_together(job.gang.nodes)}"
    yield f"{line}; {job.failures} failures charged, {job.steps_lost} steps lost"
    yield f"  because: {job.reason}"
    leader = world.leader
    if leader is not None:
        yield f"  next: {outlook(leader.state, job)}"
    if job.checkpoints:
        kept = [f"{each.step} {each.state}" for each in job.checkpoints if each.state != "expired"]
        yield f"  checkpoints: {', '.join(kept)}"


def _nodes(world: World) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for name, node in world.nodes.items():
        words = [] if node.powered else ["no power"]
        words.append("connected" if NODE["connected"](world, node) else "out of sight")
        words += ["cordoned"] if name in cordoned(world) else []
        held = holder(world, name)
        words.append(f"held by {held}" if held else "free")
        alike.setdefault(", ".join(words), []).append(name)
    for what, found in alike.items():
        yield f"{names(found)}: {what}"


def _storage(world: World) -> Iterator[str]:
    for job in world.jobs():
        kept = [f"g{each.generation} step {each.step} {each.condition}" for each in world.site.storage.of(job.id)]
        yield f"storage of {job.id}: {', '.join(kept) or 'nothing'}"


def _leader(world: World) -> Iterator[str]:
    for name, host in world.coordinators.items():
        leader = host.leader
        if not host.runs:
            yield f"{name}: dead"
        elif leader is None:
            yield f"{name}: stands by"
        else:
            yield f"{name}: leads with term {leader.term}, store {leader.store_state}"
    running = [f"{job.name} on {names(found)}" for job in world.jobs() if (found := running_on(world, job))]
    yield f"workers run: {'; '.join(running) or 'nowhere'}"


VERBS = (
    Verb("quietly", "Write no story of this block; promises see it all the same.", _quietly),
    Verb("wait LENGTH", "Let time pass: 90s, 250ms, 1h30m.", _wait),
    Verb("stabilize [within=2m]", "Wait until nothing but training happened for 10 s.", _stabilize),
    Verb("until SUBJECT CONDITION... [within=10m]", "Wait until it is so; conditions as for expect.", _until),
    Verb("until-told TEXT [within=10m]", "Wait until a new line of the story contains it.", _until_story),
    Verb(
        "expect SUBJECT CONDITION...",
        "A promise: SUBJECT is a job, a node, leader or operators; state=running, generation>=2, reason~lost.",
        _expect,
    ),
    Verb("expect-told TEXT", "A promise: some line of the story contains it.", _expect_story),
    Verb("forbid TEXT", "A promise: no line of the story so far contains it.", _forbid),
    Verb(
        "breaks TEXT",
        "Admits that a promise that holds everywhere, and whose text contains TEXT, is broken here today.",
        _breaks,
    ),
    Verb("show job JOB | nodes | storage | leader", "Write down how things are.", _show),
)
