"""A training loop on one thread with 1 GB of state, and what a save costs it. Not for who saves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

LAYERS, WIDTH, BATCH = 24, 1920, 8
IDLE_STEPS = 6
"""Before a save and after it; the median of both is what a step takes."""
SAVING_STEPS_MIN, SAVING_STEPS_MAX = 3, 200


class Subject(Protocol):
    """A way to save."""

    def before_optimizer(self) -> None:
        """What has to be over before the state changes."""

    def after_step(self, step: int, save: bool) -> None:
        """A step is complete."""

    def over(self) -> bool:
        """Whether nothing is under way any more: what was saved can be loaded. Raises if it failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What saves cost, in seconds, one value for each."""

    blocked: list[float]
    """The loop stood still: the call itself, and what an optimizer step waited for."""
    extra: list[float]
    """All that the steps took longer, from the save on until it was over."""
    took: list[float]
    """Until it was over."""
    copy: list[float]
    """A plain copy of the same state into memory that is there already."""
    step: float
    bytes: int


class Loop:
    """The training, and what is measured in it."""

    def __init__(self) -> None:
        import torch
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        # Fused: one pass over the memory. The other kinds take three times as long and would hide what saves cost.
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)
        self.inputs = torch.randn(BATCH, WIDTH)
        self.step = 0
        self.blocked_s = 0.0

    def one(self, subject: Subject, *, save: bool = False) -> float:
        """Seconds that a step took, and a save after it."""
        began = time.perf_counter()
        self.model(self.inputs).pow(2).mean().backward()
        self._blocked(subject.before_optimizer)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self._blocked(lambda: subject.after_step(self.step, save))
        return time.perf_counter() - began

    def _blocked(self, call: Callable[[], None]) -> None:
        began = time.perf_counter()
        call()
        self.blocked_s += time.perf_counter() - began

    def save(self, subject: Subject) -> list[float]:
        """The steps from one with a save after it until that is over."""
        spent = [self.one(subject, save=True)]
        while len(spent) < SAVING_STEPS_MIN or not subject.over():
            spent.append(self.one(subject))
            if len(spent) > SAVING_STEPS_MAX:
                raise TimeoutError(f"a save was not over after {SAVING_STEPS_MAX} steps")
        return spent

    def state(self) -> dict[str, Any]:
        """As a script would save it."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def tensors(self) -> list[Any]:
        """All of them, not copied."""
        kept = [value for state in self.optimizer.state.values() for value in state.values() if value.dim()]
        return [*(param.detach() for param in self.model.parameters()), *kept]


def measure(loop: Loop, subject: Subject, repeat: int) -> Measured:
    """Saves of one subject. The first two, in which everybody makes buffers and processes, are not counted."""
    for _ in range(2):
        loop.save(subject)
    blocked, extra, took, copies, all_idle = [], [], [], [], []
    buffers = [tensor.clone() for tensor in loop.tensors()]
    idle, nothing_s = _idle(loop, subject)
    for _ in range(repeat):
        copies.append(_copy_s(loop, buffers))
        loop.blocked_s = 0.0
        saving = loop.save(subject)
        blocked.append(loop.blocked_s - nothing_s * len(saving))
        after, nothing_s = _idle(loop, subject)
        extra.append(sum(saving) - len(saving) * statistics.median(idle + after))
        took.append(sum(saving[1:]))
        all_idle += idle
        idle = after
    return Measured(
        blocked=blocked,
        extra=extra,
        took=took,
        copy=copies,
        step=statistics.median(all_idle),
        bytes=sum(tensor.nbytes for tensor in buffers),
    )


def _idle(loop: Loop, subject: Subject) -> tuple[list[float], float]:
    """Steps without a save; and what the subject's own hooks take in each of them."""
    loop.blocked_s = 0.0
    spent = [loop.one(subject) for _ in range(IDLE_STEPS)]
    return spent, loop.blocked_s / IDLE_STEPS


def _copy_s(loop: Loop, buffers: list[Any]) -> float:
    began = time.perf_counter()
    for source, target in zip(loop.tensors(), buffers, strict=True):
        target.copy_(source)
    return time.perf_counter() - began
