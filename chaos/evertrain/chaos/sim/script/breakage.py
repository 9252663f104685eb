"""Verbs that break things and mend them: power, processes, links, etcd, storage, clocks.

They act at once and let no time pass; planned faults with a length of their own
are the verb ``at``.
"""

from __future__ import annotations

from evertrain.chaos.sim.script.args import Args, duration
from evertrain.chaos.sim.script.stage import Stage
from evertrain.chaos.sim.script.verb import Verb
from evertrain.chaos.sim.storage import Condition

SIGNALS = {"SIGKILL": 9, "SIGSEGV": 11, "SIGTERM": 15, "SIGABRT": 6, "SIGBUS": 7}
CONDITIONS = {
    "rotten": Condition.ROTTEN,
    "torn": Condition.TORN,
    "missing": Condition.SHARD_MISSING,
    "gone": Condition.GONE,
    "whole": Condition.WHOLE,
}


# -- nodes ---------------------------------------------------------------------------------


async def _lose(stage: Stage, args: Args) -> None:
    lost = stage.several(args)
    args.done()
    for node in lost:
        node.lose_power()


async def _boot(stage: Stage, args: Args) -> None:
    dark = stage.several(args)
    args.done()
    for node in dark:
        node.boot()


async def _kill_worker(stage: Stage, args: Args) -> None:
    launcher = stage.launcher(args)
    message = args.option("message", str, "")
    code = args.option("exit", int, -args.option("signal", _signal, 9))
    args.done()
    launcher.kill_worker(code, message)


def _signal(name: str) -> int:
    if name not in SIGNALS:
        raise ValueError(f"{name!r} is none of {', '.join(SIGNALS)}")
    return SIGNALS[name]


async def _kill_launcher(stage: Stage, args: Args) -> None:
    launcher = stage.launcher(args)
    args.done()
    launcher.die("it was killed by SIGKILL")


async def _stop_launcher(stage: Stage, args: Args) -> None:
    launcher = stage.launcher(args)
    args.done()
    launcher.stopped += 1


async def _resume_launcher(stage: Stage, args: Args) -> None:
    launcher = stage.launcher(args)
    args.done()
    launcher.stopped = max(0, launcher.stopped - 1)
    launcher.tell()


async def _freeze(stage: Stage, args: Args) -> None:
    launcher = stage.launcher(args)
    args.done()
    launcher.freeze(+1)


async def _thaw(stage: Stage, args: Args) -> None:
    launcher = stage.launcher(args)
    args.done()
    launcher.freeze(-1)


async def _slow_workers(stage: Stage, args: Args) -> None:
    launcher = stage.launcher(args)
    factor = args.read("factor", float)
    args.done()
    launcher.slow_down(factor)


async def _kill_agent(stage: Stage, args: Args) -> None:
    node = stage.node(args)
    args.done()
    node.kill_agent()


async def _start_agent(stage: Stage, args: Args) -> None:
    node = stage.node(args)
    args.done()
    node.start_agent()


async def _pause_agent(stage: Stage, args: Args) -> None:
    agent = stage.agent(args)
    args.done()
    agent.stop(+1)


async def _resume_agent(stage: Stage, args: Args) -> None:
    agent = stage.agent(args)
    args.done()
    agent.stop(-1)


# -- links -----------------------------------------------------------------------------------


async def _cut(stage: Stage, args: Args) -> None:
    one_way = args.flag("one-way")
    for pair in _links(stage, args, one_way=one_way):
        stage.world.site.network.cut(*pair)
        stage.cuts.append(pair)


async def _mend(stage: Stage, args: Args) -> None:
    if args.flag("everything"):
        args.done()
        wanted = list(stage.cuts)
    else:
        wanted = [pair for pair in _links(stage, args, one_way=False) if pair in stage.cuts]
        if not wanted:
            raise args.wrong("nothing is cut there")
    for pair in wanted:
        stage.cuts.remove(pair)
        stage.world.site.network.mend(*pair)


def _links(stage: Stage, args: Args, *, one_way: bool) -> list[tuple[str, str]]:
    sources, targets = stage.ends(args), stage.ends(args)
    args.done()
    pairs = [(a, b) for a in sources for b in targets if a != b]
    return list(dict.fromkeys(pairs if one_way else [*pairs, *((b, a) for a, b in pairs)]))


async def _weather(stage: Stage, args: Args) -> None:
    weather = stage.world.site.network.weather
    weather.delay_s = args.option("delay", duration, weather.delay_s)
    weather.jitter_s = args.option("jitter", duration, weather.jitter_s)
    weather.loss = args.option("loss", float, weather.loss)
    weather.twice = args.option("twice", float, weather.twice)
    args.done()


# -- coordinators ------------------------------------------------------------------------------


async def _kill_coordinator(stage: Stage, args: Args) -> None:
    host = stage.coordinator(args)
    args.done()
    host.kill()


async def _start_coordinator(stage: Stage, args: Args) -> None:
    host = stage.coordinator(args)
    args.done()
    host.start()


async def _pause_coordinator(stage: Stage, args: Args) -> None:
    host = stage.coordinator(args)
    args.done()
    host.process.stop()
    _tell_agents(stage, host.name)


async def _resume_coordinator(stage: Stage, args: Args) -> None:
    host = stage.coordinator(args)
    args.done()
    host.process.go_on()
    _tell_agents(stage, host.name)


def _tell_agents(stage: Stage, coordinator: str) -> None:
    """Their keep-alive looks whether it answers."""
    for node in stage.world.nodes.values():
        if node.agent is not None:
            node.agent.session.links_changed(coordinator)


async def _clock(stage: Stage, args: Args) -> None:
    host = stage.coordinator(args)
    step = args.word("step")
    args.done()
    if step[:1] not in ("+", "-"):
        raise args.wrong(f"{step!r}: write +30s or -30s")
    host.clock.offset_s += duration(step[1:]) * (1 if step.startswith("+") else -1)


# -- etcd and storage ----------------------------------------------------------------------------


async def _etcd(stage: Stage, args: Args) -> None:
    server = stage.world.server
    match args.one_of("state", ("away", "back", "full", "slow", "unknown", "ok", "lose-leases", "compact")):
        case "away":
            server.go_away()
        case "back":
            server.come_back()
        case "full":
            server.quota_full += 1
        case "slow":
            server.slow_s = args.read("mean", duration)
        case "unknown":
            server.unknown = args.read("chance", float)
        case "lose-leases":
            server.revoke()
        case "compact":
            server.compact(server.snapshot().revision)
        case _:
            server.quota_full, server.slow_s, server.unknown = 0, 0.0, 0.0
    args.done()


async def _storage(stage: Stage, args: Args) -> None:
    storage = stage.world.site.storage
    match args.one_of("state", ("down", "full", "hangs", "same-again", "slow", "tears-next", "ok")):
        case "down":
            storage.down += 1
        case "full":
            storage.full += 1
        case "hangs":
            storage.hanging += 1
        case "same-again":
            storage.same_again += 1
        case "slow":
            storage.slow = args.read("factor", float)
        case "tears-next":
            storage.tear_next += 1
        case _:
            storage.down, storage.full, storage.hanging, storage.same_again, storage.slow = 0, 0, 0, 0, 1.0
    args.done()


async def _spoil(stage: Stage, args: Args) -> None:
    which = args.word("which")
    job = args.word("job")
    condition = CONDITIONS[args.one_of("condition", CONDITIONS)]
    args.done()
    world = stage.world
    kept = [each for each in world.site.storage.of(world.job(job).id) if which in ("newest", str(each.step))]
    if not kept:
        raise args.wrong(f"job {job} has no checkpoint {which} on storage")
    world.site.storage.spoil(kept[-1].path, condition)


VERBS = (
    Verb("lose NODES", "Cut their power: everything on them is gone, nothing is said. n2, n2,n5 or n3..n9.", _lose),
    Verb("boot NODES", "Switch them on; their agents start when the system is up.", _boot),
    Verb(
        "kill-worker NODE [job=JOB] [signal=SIGKILL | exit=CODE] [message=...]",
        "One of its workers ends, whatever the script wanted; exit=0: it ends as if it were done.",
        _kill_worker,
    ),
    Verb("kill-launcher NODE [job=JOB]", "The launcher dies, its workers with it.", _kill_launcher),
    Verb(
        "stop-launcher NODE [job=JOB]",
        "The launcher process does nothing (SIGSTOP).",
        _stop_launcher,
    ),
    Verb("resume-launcher NODE [job=JOB]", "It goes on.", _resume_launcher),
    Verb("freeze-workers NODE [job=JOB]", "Its workers do nothing: stopped, or stuck.", _freeze),
    Verb("thaw-workers NODE [job=JOB]", "They go on.", _thaw),
    Verb("slow-workers NODE FACTOR [job=JOB]", "Its workers take FACTOR times as long for a step.", _slow_workers),
    Verb("kill-agent NODE", "The agent dies; launchers and workers go on.", _kill_agent),
    Verb("start-agent NODE", "It is started again.", _start_agent),
    Verb("pause-agent NODE", "The agent does nothing (SIGSTOP).", _pause_agent),
    Verb("resume-agent NODE", "It goes on.", _resume_agent),
    Verb(
        "cut A B [one-way]", "Nothing gets from A to B, nor back. n1,n2, nodes, coordinators, all, etcd, storage.", _cut
    ),
    Verb("mend A B | mend everything", "Take cuts back.", _mend),
    Verb("weather [delay=0.5ms] [jitter=0s] [loss=0] [twice=0]", "How the whole network is from now on.", _weather),
    Verb("kill-coordinator NAME | leader", "It dies.", _kill_coordinator),
    Verb("start-coordinator NAME", "It is started.", _start_coordinator),
    Verb("pause-coordinator NAME | leader", "It does nothing (SIGSTOP).", _pause_coordinator),
    Verb("resume-coordinator NAME", "It goes on.", _resume_coordinator),
    Verb("clock COORDINATOR +30s", "Its wall clock is set by hand.", _clock),
    Verb(
        "etcd away | back | full | slow MEAN | unknown CHANCE | ok | lose-leases | compact",
        "away: neither reads nor writes; full: no writes; unknown: answers are lost; ok: ends the last three.",
        _etcd,
    ),
    Verb(
        "storage down | full | hangs | same-again | slow FACTOR | tears-next | ok",
        "The checkpoint storage; tears-next: the next save looks done and is torn; same-again: no save brings news.",
        _storage,
    ),
    Verb("spoil newest | STEP JOB rotten | torn | missing | gone | whole", "Damage a checkpoint; or mend it.", _spoil),
)
