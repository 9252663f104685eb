"""Carries the watching of health out: sources into the core, its conditions to whoever reports them. Decides nothing.

Each source is read in a process of its own, when its schedule says so. The
files by which operators hold and clear are looked at once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import structlog

from evertrain.agent.health import conditions, judge_gpu, judge_host, judge_network
from evertrain.agent.health.children import Child, ProbeLost, ProbeStuck, run_script
from evertrain.agent.health.facts import Booted, Fact, Lost, Read, Released, Tick
from evertrain.agent.health.follower import KERNEL, Follower
from evertrain.agent.health.keeping import Folder, Hold, kept_of, state_of
from evertrain.agent.health.rules import Check, Mount, Pace
from evertrain.agent.health.schedule import Schedule
from evertrain.agent.health.settings import GpuSource, Settings
from evertrain.contract.health import Condition

LOOK_S: Final = 1.0
TELL_AGAIN_S: Final = 60.0
"""Counts and evidence that changed are told so late; what is raised or cleared, at once."""
JOB_MOUNTS_MAX: Final = 16
GPU: Final = judge_gpu.SOURCE
KEEP_AGAIN_S: Final = 60.0
"""Counts and evidence are kept on the disk so late; what is raised or cleared, at once."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What runs on the node now."""

    folders: frozenset[str] = frozenset()
    """Checkpoint folders of its jobs."""
    busy: bool = False
    """A job has the node's devices."""


class Monitor:
    """One for the node. :meth:`run` until cancelled; :meth:`told` at any time."""

    def __init__(
        self,
        settings: Settings,
        *,
        folder: Folder,
        boot_id: str,
        rng: Random,
        clock: Callable[[], float],
        wall: Callable[[], float],
        changed: Callable[[], None],
        work: Callable[[], Work],
    ) -> None:
        """``clock`` is monotonic, ``wall`` since the epoch."""
        self._settings, self._rules, self._folder = settings, settings.rules, folder
        self._rng, self._clock, self._wall = rng, clock, wall
        self._changed, self._work = changed, work
        kept, warning = folder.load(self._rules)
        if warning:
            log.warning("health.kept_damaged", reason=warning)
        self._state = state_of(kept)
        self._kernel = Follower(
            settings,
            after=kept.sequence if kept.boot_id == boot_id else -1,
            take=self._take_now,
            wall=wall,
            rng=rng,
        )
        self._held: Hold | None = None
        booted = Booted(at=wall(), boot_id=boot_id, expected=folder.hold(wall()) is not None)
        self._state = conditions.step(self._state, booted, self._rules)
        self._told = conditions.told(self._state)
        self._told_s = clock()
        self._schedule = Schedule()
        self._children: dict[str, Child] = {}
        self._mounts: dict[str, Mount] = {}
        self._checks: dict[str, Check] = {}
        self._gpus = judge_gpu.GpuJudge(self._rules)
        self._network = judge_network.NetworkJudge(self._rules, known=kept.ports)
        self._host = judge_host.HostJudge(self._rules)
        self._wake = asyncio.Event()
        self._saved, self._saved_s = kept, clock()

    def told(self) -> tuple[tuple[Condition, ...], int]:
        """The conditions there are now, the gravest first, and how many more."""
        return self._told

    async def run(self) -> None:
        """Watch until cancelled; no probe process is left behind, but for one that cannot be killed."""
        self._plan()
        try:
            async with asyncio.TaskGroup() as group:
                if self._rules.probes[KERNEL].enabled:
                    group.create_task(self._kernel.run())
                while True:
                    await self._look()
                    for source in self._schedule.take(self._clock()):
                        group.create_task(self._read(source))
                    self._publish()
                    await self._keep()
                    wait_s = self._schedule.next_s(self._clock())
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S if wait_s is None else max(0.05, min(LOOK_S, wait_s))):
                            await self._wake.wait()
                    self._wake.clear()
        finally:
            for child in self._children.values():
                with contextlib.suppress(ProbeLost):
                    await child.close()

    # -- what is read -------------------------------------------------------------------

    def _plan(self) -> None:
        names = ["network", "host", *(["gpu"] if self._settings.gpus_wanted() else [])]
        sources = {name: pace for name in names if (pace := self._rules.probes[name]).enabled}
        for check in self._rules.checks:
            self._checks[f"check:{check.name}"] = check
            sources[f"check:{check.name}"] = Pace(period_s=check.period_s, deadline_s=check.deadline_s)
        for source, pace in sources.items():
            self._add(source, pace)

    def _add(self, source: str, pace: Pace) -> None:
        self._schedule.add(source, pace, now=self._clock(), chance=self._rng.random())

    async def _look(self) -> None:
        """What operators said, and which folders jobs use now."""
        now = self._wall()
        await self._follow_hold(now)
        for cleared in self._folder.take_clearings():
            log.info("health.cleared", kind=cleared.kind or "all", entity=cleared.entity or "all")
            self._network.forget(cleared.entity)
            self._take(cleared)
        self._follow_jobs()
        self._take(Tick(at=now))

    async def _follow_hold(self, now: float) -> None:
        held = self._folder.hold(now)
        if held == self._held:
            return
        self._held = held
        self._schedule.hold([GPU], held is not None, now=self._clock())
        log.info("health.hold", on=held is not None, reason="" if held is None else held.reason)
        if held is None:
            self._take(Released(at=now))
        elif GPU in self._schedule.sources:
            self._take(Lost(at=now, source=GPU, reason=_held_text(held)))
            if (child := self._children.pop(GPU, None)) is not None:
                with contextlib.suppress(ProbeLost):
                    await child.close()  # a GPU that somebody has open cannot be reset

    def _follow_jobs(self) -> None:
        wanted = {each.path: each for each in self._settings.all_mounts()}
        for path in sorted(self._work().folders)[:JOB_MOUNTS_MAX]:
            wanted.setdefault(path, Mount(path=path))
        if not self._rules.probes["storage"].enabled:
            wanted = {}
        for path in set(self._mounts) - set(wanted):
            self._schedule.drop(f"storage:{path}")
            self._state = conditions.forget(self._state, f"storage:{path}")
        for path in set(wanted) - set(self._mounts):
            self._add(f"storage:{path}", self._rules.probes["storage"])
        self._mounts = wanted

    async def _read(self, source: str) -> None:
        """One reading of one source, to its end."""
        facts: list[Fact]
        stuck: ProbeStuck | None = None
        try:
            facts = await self._facts(source)
        except ProbeStuck as err:
            stuck, facts = err, [Lost(at=self._wall(), source=source, reason=str(err), signal=_stuck_signal(source))]
        except ProbeLost as err:
            facts = [Lost(at=self._wall(), source=source, reason=str(err))]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as err:
            reason = f"its reading is in a form that is not understood: {type(err).__name__}: {err}"
            facts = [Lost(at=self._wall(), source=source, reason=reason)]
        if source not in self._schedule.sources:
            return  # nobody wants it any more
        if not (source == GPU and self._held is not None):
            for fact in facts:
                self._take(fact)
        lost = any(isinstance(each, Lost) for each in facts)
        if stuck is not None:
            self._schedule.stuck(source, True)
        self._schedule.done(source, now=self._clock(), lost=lost, chance=self._rng.random())
        self._wake.set()
        if stuck is not None:
            await stuck.process.wait()
            self._schedule.stuck(source, False)

    async def _facts(self, source: str) -> list[Fact]:
        kind, _, name = source.partition(":")
        root = str(self._settings.root)
        if kind == "check":
            check = self._checks[source]
            code, output = await run_script(check.command, check.deadline_s)
            return judge_host.check_facts(check, code, output, self._wall())
        if kind == "storage":
            return await self._storage(source, name)
        if kind == "network":
            return self._network.facts(await self._ask(source, {"root": root}), self._wall())
        if kind == "host":
            return self._host.facts(await self._ask(source, {"root": root}), self._wall())
        assert kind == GPU, "one of those that were planned"
        file = self._settings.gpu is GpuSource.FILE
        reading = await self._ask(source, {"root": root, "source": "file" if file else "nvml"})
        busy = self._work().busy
        return self._gpus.facts(reading, self._wall(), on_bus=self._host.gpus_on_bus, busy=busy)

    async def _ask(self, source: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        child = self._children.setdefault(source, Child(source))
        return await child.ask(request, self._rules.probes[source].deadline_s)

    async def _storage(self, source: str, path: str) -> list[Fact]:
        """In a process that ends with it: there may be many folders, and one that hangs must not stop the others."""
        mount = self._mounts.get(path)
        if mount is None:
            return []
        child = Child("storage")
        request = {
            "path": path,
            "write": mount.write,
            "bytes": self._rules.thresholds.storage_bytes,
            "node": self._settings.node,
        }
        reading = await child.ask(request, self._rules.probes["storage"].deadline_s)
        await child.close()
        return judge_host.storage_facts(path, reading, self._wall(), self._rules)

    # -- what comes of it -----------------------------------------------------------------

    def _take(self, fact: Fact) -> None:
        self._state = conditions.step(self._state, fact, self._rules)

    def _take_now(self, fact: Fact) -> None:
        """What must not wait for the next look."""
        self._take(fact)
        if not isinstance(fact, Read):
            self._wake.set()

    def _publish(self) -> None:
        """Have a report sent when conditions were raised or cleared; changed counts may wait."""
        told = conditions.told(self._state)
        if told == self._told:
            return
        before, after = conditions.edges(self._told[0]), conditions.edges(told[0])
        if before == after and self._clock() - self._told_s < TELL_AGAIN_S:
            return
        for each in told[0]:
            if (each.key, each.status, each.severity, each.action) not in before:
                log.warning(
                    "health.condition",
                    kind=each.kind,
                    entity=each.entity.name,
                    status=each.status,
                    severity=each.severity,
                    evidence=each.evidence,
                )
        self._told, self._told_s = told, self._clock()
        self._changed()

    async def _keep(self) -> None:
        kept = kept_of(self._state, self._kernel.sequence, self._network.known())
        if kept == self._saved:
            return
        urgent = kept.essence() != self._saved.essence()
        if not urgent and self._clock() - self._saved_s < KEEP_AGAIN_S:
            return
        self._saved, self._saved_s = kept, self._clock()
        try:
            await asyncio.to_thread(self._folder.save, kept)
        except OSError as err:
            log.warning("health.not_kept", reason=str(err))


def _stuck_signal(source: str) -> str:
    return {GPU: "nvml-hang", "storage": "storage-stuck"}.get(source.partition(":")[0], "probe-stuck")


def _held_text(hold: Hold) -> str:
    return f"GPU probes are held{f' by {hold.by}' if hold.by else ''}: {hold.reason}"


def boot_id(root: Path) -> str:
    """Which start of the host this is; empty when the kernel does not tell."""
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
