"""Evertrain as a training script uses it, for the benchmark of checkpoints: saves, copies in memory, restores."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.training import Loop

COPY_EVERY = 20
"""Steps between two copies: so that blocks of ten steps with one and without one take turns."""
BLOCK = 10
STEP_S = 0.1


class Evertrain:
    """Ours, as a script uses it."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        from evertrain import trainer

        self._loop, self._folder, self._saved, self._hook_began = loop, folder, 0, 0.0
        loop.optimizer.register_step_pre_hook(self._hooks_begin)
        os.environ["EVERTRAIN_CHECKPOINT_KEEP"] = "1"  # as all here keep the newest alone
        self._job = trainer.session(checkpoint_dir=folder)
        self._job.__enter__()
        self._job.state(model=loop.model, optimizer=loop.optimizer).restore()
        loop.optimizer.register_step_pre_hook(self._hooks_end)

    def before_optimizer(self) -> None:
        """The library's own hook waits, in optimizer.step(); two hooks around it measure that."""

    def _hooks_begin(self, *_: Any) -> None:
        self._hook_began = time.perf_counter()

    def _hooks_end(self, *_: Any) -> None:
        self._loop.blocked_s += time.perf_counter() - self._hook_began

    def after_step(self, step: int, save: bool) -> None:
        self._job.step_done(step, save=save)
        if save:
            self._saved = step

    def over(self) -> bool:
        return any(self._folder.glob(f"step-{self._saved:09d}-g*/manifest.json"))


def in_memory(loop: Loop, folder: Path, *, copy_every: int) -> tuple[Any, Any]:
    """A session and a state whose copies lie in ``folder`` and outlive this process, as under a launcher."""
    copies = folder / "copies"
    copies.mkdir(exist_ok=True)
    os.environ.update(
        EVERTRAIN_COPIES=str(copies),
        EVERTRAIN_COPY_EVERY_STEPS=str(copy_every),
        EVERTRAIN_RESTORE_MEMORY_SINCE="1",
        EVERTRAIN_GENERATION="1",
    )
    from evertrain import trainer

    job = trainer.session(checkpoint_dir=folder / "checkpoints")
    job.__enter__()
    return job, job.state(model=loop.model, optimizer=loop.optimizer)


class _Nobody:
    """No way to save: the loop alone."""

    def before_optimizer(self) -> None:
        """Nothing."""

    def after_step(self, step: int, save: bool) -> None:
        """Nothing."""

    def over(self) -> bool:
        return True


def fill(folder: Path) -> float:
    """Leave a copy of a state in memory; seconds until it was sealed."""
    loop = Loop()
    job, state = in_memory(loop, folder, copy_every=1)
    state.restore()
    loop.one(_Nobody())
    began = time.perf_counter()
    job.step_done(loop.step)
    assert job.flush(), "the copy failed"
    return time.perf_counter() - began


def restore(folder: Path) -> float:
    """Seconds of a restore from the copy that :func:`fill` left, in a process that has not trained yet."""
    loop = Loop()
    _, state = in_memory(loop, folder, copy_every=1)
    began = time.perf_counter()
    step = state.restore()
    took_s = time.perf_counter() - began
    assert step == 1, "it was restored from memory: storage has nothing"
    return took_s


def slowdown(folder: Path, pairs: int) -> tuple[list[float], list[float], list[float]]:
    """Blocks of ten steps of 100 ms: seconds of those with a copy of the whole state, and without; and of steps.

    What a step computes stays in the processor's cache, as if it ran on a
    device; the optimizer changes one layer, and the copy is of all.
    """
    import torch

    loop = Loop()
    job, state = in_memory(loop, folder, copy_every=COPY_EVERY)
    state.restore()
    loop.one(_Nobody())  # the optimizer has a state for every parameter from now on
    factor, product = torch.randn(512, 512), torch.empty(512, 512)

    def compute(times: int) -> None:
        for _ in range(times):
            torch.mm(factor, factor, out=product)

    def step(times: int) -> None:
        compute(times)
        loop.model[-1](loop.inputs).pow(2).mean().backward()
        loop.optimizer.step()
        loop.optimizer.zero_grad()
        loop.step += 1
        job.step_done(loop.step)

    while (loop.step + 1) % COPY_EVERY:
        step(1)
    compute(20)
    one_s = statistics.median(_seconds(lambda: compute(10)) for _ in range(9)) / 10
    times = max(1, round(STEP_S / one_s))
    with_copy, without, steps = [], [], []
    for number in range(pairs + 2):
        spent = [[_seconds(lambda: step(times)) for _ in range(BLOCK)] for _ in range(2)]
        if number >= 2:  # the first ones make files and processes
            with_copy.append(sum(spent[0]))
            without.append(sum(spent[1]))
            steps += spent[1]
    assert job.flush(), "a copy failed"
    return with_copy, without, steps


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
