"""The demo from start to end: cluster, job, faults, report. Whatever ends it, nothing of it stays behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from evertrain.api.v1 import operator_pb2
from evertrain.chaos.demo import guardian, report
from evertrain.chaos.demo.live import Screen, state_of
from evertrain.chaos.demo.script import Fault, Script
from evertrain.contract.jobspec import JobSpec
from evertrain.ctl.connection import Connection
from evertrain.ctl.local import down, state, up
from evertrain.ctl.operator import Operator
from evertrain.jobspec.load import load
from evertrain.trainer import data

NODES = 4
START_DEADLINE_S = 60.0
RUN_DEADLINE_S = 170.0
NODES_EVERY_S = 0.3


class DemoFailed(Exception):
    """The demo did not get to its end; the text says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    job: Path
    out: Path
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the run left behind."""

    job: operator_pb2.Job
    events: tuple[operator_pb2.Event, ...]
    faults: tuple[Fault, ...]
    seconds: float


def run(options: Options, console: Console) -> int:
    """Everything; the exit code."""
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    # Below /tmp and short: the kernel limits the path of a unix socket to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="evertrain-", dir="/tmp"))
    watcher = guardian.watch_over(folder)
    try:
        seen = asyncio.run(_demo(options, console, folder))
        made = _report(options, folder, seen)
    finally:
        guardian.dismiss(watcher)
    report.write_json(made, options.out / "report.json")
    summary = report.text(made)
    (options.out / "report.txt").write_text(summary + "\n")
    console.rule("report")
    console.print(summary, highlight=False)
    console.print(f"\npicture: {options.out / 'loss.png'}   numbers: {options.out / 'report.json'}", highlight=False)
    good = made.audit.exact and len(made.recoveries) == len(seen.faults) and made.losses_repeat is not False
    return 0 if good else 1


async def _demo(options: Options, console: Console, folder: Path) -> _Seen:
    for number in (signal.SIGTERM, signal.SIGHUP):
        task = asyncio.current_task()
        assert task is not None, "runs as a task"
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with state.locked(folder), Screen(console, steps=options.steps) as screen:
        try:
            screen.say(f"starting a coordinator and {NODES} agents on this machine")
            cluster = await up.start(_wanted(folder), lambda _text: None)
            return await _train(options, folder, cluster.coordinator, screen)
        finally:
            screen.say("taking the cluster down")
            await asyncio.shield(down.stop(folder, lambda _text: None))


def _wanted(folder: Path) -> up.Wanted:
    return up.Wanted(
        folder=folder,
        nodes=NODES,
        slots=8,
        programs=up.installed_programs(),
        deadline_s=START_DEADLINE_S,
        env=os.environ,
    )


def _spec(options: Options, folder: Path) -> JobSpec:
    spec = load(options.job).spec
    spare = ("--steps", str(options.steps), "--out", str(folder / "run"))
    return replace(spec, args=spare, checkpoint=replace(spec.checkpoint, dir=str(folder / "checkpoints")))


async def _train(options: Options, folder: Path, address: str, screen: Screen) -> _Seen:
    spec = _spec(options, folder)
    began = time.monotonic()
    async with Connection([address], request_timeout_s=10.0) as connection:
        operator = Operator(connection, by="demo")
        await operator.submit(spec)
        screen.say(f"submitted {options.job.name}: {spec.nodes.min} to {spec.nodes.max} nodes, one worker each")
        script = Script(
            folder=folder,
            worker_at=options.steps * 3 // 10 + 6,  # between two checkpoints, so that something is lost
            node_at=options.steps * 5 // 10 + 8,
            return_at=options.steps * 7 // 10,
            say=lambda text: screen.say(text, "bold red"),
        )
        async with asyncio.timeout(RUN_DEADLINE_S), asyncio.TaskGroup() as tasks:
            told = tasks.create_task(_tell(operator, screen))
            job = await _follow(operator, spec.name, script, screen)
            told.cancel()
        if job.state != operator_pb2.JOB_STATE_SUCCEEDED:
            raise DemoFailed(f"the job is {state_of(job)}: {job.reason}")
        events = tuple([event async for event in operator.events(job=spec.name)])
    return _Seen(job=job, events=events, faults=tuple(script.faults), seconds=time.monotonic() - began)


async def _follow(operator: Operator, name: str, script: Script, screen: Screen) -> operator_pb2.Job:
    nodes: Sequence[operator_pb2.Node] = ()
    looked = 0.0
    last: operator_pb2.Job | None = None
    async for job in operator.watch(name):
        if time.monotonic() - looked > NODES_EVERY_S:
            nodes, looked = await operator.nodes(), time.monotonic()
        screen.show(job, nodes)
        script.advance(job)
        last = job
    assert last is not None, "a watch yields the job at least once"
    return last


async def _tell(operator: Operator, screen: Screen) -> None:
    """The coordinator's own words for what happens."""
    styles = {"gang.broken": "yellow", "gang.first_step": "green", "node.unknown": "yellow", "gang.yield": "cyan"}
    async for event in operator.events(follow=True):
        if event.kind in styles or event.kind.startswith("gang."):
            screen.say(event.text, styles.get(event.kind, ""))


def _report(options: Options, folder: Path, seen: _Seen) -> report.Report:
    steps = report.read_steps(folder / "run" / "steps")
    history = report.kept(steps)
    plan = data.read_plan(folder / "run" / "plan.json")
    report.draw(steps, seen.faults, options.out / "loss.png")
    return report.Report(
        steps=len(history),
        seconds=seen.seconds,
        generations=len(seen.job.history),
        loss_first=history[0].loss,
        loss_last=history[-1].loss,
        recoveries=tuple(_recovery(fault, steps, seen) for fault in seen.faults),
        audit=data.audit(folder / "run" / "consumed", plan),
        losses_repeat=_repeats(steps),
    )


def _recovery(fault: Fault, steps: Sequence[report.Step], seen: _Seen) -> report.Recovery:
    generation = next(each for each in seen.job.history if each.generation == fault.generation + 1)
    broken = next(e for e in seen.events if e.kind == "gang.broken" and e.generation == fault.generation)
    first = next(each for each in steps if each.generation > fault.generation)
    before = [each for each in steps if each.generation <= fault.generation and each.time_ns < first.time_ns]
    phases = generation.phases
    return report.Recovery(
        fault=fault.name,
        at_step=fault.step,
        generation=generation.generation,
        detect_ms=broken.at_s * 1e3 - fault.at_ns / 1e6,
        first_step_ms=(first.time_ns - fault.at_ns) / 1e6,
        steps_lost=max(each.step for each in before) - first.step + 1,
        cause=broken.text,
        phases={
            "decide": phases.decide_ms,
            "stop": phases.stop_ms,
            "restart": phases.restart_ms,
            "restore": phases.restore_ms,
            "first step": phases.first_step_ms,
        },
    )


def _repeats(steps: Sequence[report.Step]) -> bool | None:
    """Whether a step that was done again at the same world size gave the same loss, to the last bit."""
    seen: dict[tuple[int, int], float] = {}
    repeated = []
    for each in steps:
        key = (each.step, each.world_size)
        if key in seen:
            repeated.append(seen[key] == each.loss)
        seen[key] = each.loss
    return all(repeated) if repeated else None
