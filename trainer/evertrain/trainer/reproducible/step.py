"""A training step that gives bitwise the same weights at any world size. Not for the data of a step (trainer.data).

The step is cut into a fixed number of logical microbatches. What one gives
depends on its seed, its samples and the weights, and on nothing of the gang;
their gradients are summed in fixed point, where order and grouping cannot show.

The units of the sums come from the gradients of the step before. When those of
this step turn out too large or too small for them, which a maximum over all
ranks says alike at every world size, the microbatches are computed once more on
units that fit. So a loop's body may see a microbatch twice. That happens in the
first step of a job, and seldom afterwards.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist
from torch import nn

from evertrain.trainer import rng
from evertrain.trainer.reproducible import surroundings
from evertrain.trainer.reproducible.errors import SettingsChanged, Unequal, Unfinished, Unsupported
from evertrain.trainer.reproducible.fixed_point import EXPONENT_MAX, Format
from evertrain.trainer.reproducible.gang import Gang
from evertrain.trainer.reproducible.gradients import ReplicatedGradients
from evertrain.trainer.reproducible.norm import clip_, global_norm
from evertrain.trainer.reproducible.share import Share, microbatch_seed

UNTOUCHED: Final = -20_000
ZERO: Final = -10_000
NOT_FINITE: Final = 10_000
"""Beside exponents of magnitudes, so that one maximum says it all: no gradient, only zeros, infinity or NaN."""

log = logging.getLogger("evertrain.trainer")


class Scales(Protocol):
    """A gradient scaler, as far as it is needed here."""

    def scale(self, outputs: torch.Tensor, /) -> torch.Tensor: ...


class Microbatch:
    """One logical microbatch of a step, for one turn of the loop's body."""

    def __init__(self, *, step: int, index: int, counted: bool, batch: Any) -> None:
        self.step = step
        self.index = index
        """Its number in the step: its samples are a function of step and index."""
        self.counted = counted
        """False for a repeat that only keeps this rank in the others' collectives."""
        self.batch = batch
        """Its data, if :meth:`Reproducible.step` was given any."""
        self.loss: torch.Tensor | None = None

    def backward(self, loss: torch.Tensor, *, scaler: Scales | None = None) -> None:
        """The backward pass for ``loss``, the mean over the microbatch's samples. Once, and undivided."""
        self.loss = loss.detach()
        torch.autograd.backward(scaler.scale(loss) if scaler is not None else loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How often a step had to be computed twice."""

    steps: int = 0
    again: int = 0


class Reproducible:
    """Makes the steps of one model reproducible; a part of the state that must survive.

    ``model`` is a plain module, the same on all ranks, or one in
    DistributedDataParallel, or sharded by ``fully_shard``. It is to be
    complete: in place, frozen as it shall be, wrapped. Declare this object
    with ``job.state(..., extra={"reproducible": it})``. Raises
    :class:`Unsupported`, or ValueError if there are more ranks than
    microbatches.
    """

    def __init__(
        self, model: nn.Module, *, microbatches: int, seed: int, group: dist.ProcessGroup | None = None
    ) -> None:
        surroundings.require_supported(model)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not parameters:
            raise Unsupported("the model has no parameter that is trained")
        self._gang = Gang(group, device=parameters[0].device)
        self.share = Share(logical=microbatches, rank=self._gang.rank, world_size=self._gang.world_size)
        self._seed = seed
        self._format = Format.of(microbatches)
        self._sums = _sums(model, microbatches, self._gang)
        self._expected: list[int | None] = [None] * len(self._sums.names)
        self._here = surroundings.describe(parameters[0].device)
        self._loss = math.nan
        self.counts = Counts()
        self.departures: tuple[str, ...] = ()
        """What of torch, device and threads differs from where the restored checkpoint was made: then the
        weights may, too."""

    @property
    def surroundings(self) -> Mapping[str, Any]:
        """What must stay the same for the bits to stay the same: device, kernels, threads."""
        return dict(self._here)

    @property
    def loss(self) -> float:
        """The mean loss over the microbatches of the last step: the same number on every rank of every gang."""
        return self._loss

    def step(self, step: int, batches: Sequence[Any] | None = None) -> Iterator[Microbatch]:
        """This rank's microbatches of step ``step``; afterwards the mean gradient is in each ``.grad``.

        ``batches`` are this rank's data, one for each of :attr:`share`'s
        ``owned``, for those who don't read by ``step`` and ``index``. Every
        generator of the process is seeded before each microbatch, and once
        after the last. A collective. Raises :class:`Unfinished`,
        :class:`Unequal`.
        """
        if batches is not None and len(batches) != len(self.share.owned):
            raise ValueError(f"{len(batches)} batches for the {len(self.share.owned)} microbatches of this rank")
        before: list[int] | None = None
        while True:
            losses: dict[int, torch.Tensor] = {}
            yield from self._pass(step, batches, losses)
            found = self._gang.maxima([_exponent(peak) for peak in self._sums.peaks()])
            if before is not None and found != before:
                raise Unequal(self._unequal(step, found, before))
            misfits = self._misfits(found)
            if NOT_FINITE in found or not misfits:
                break
            assert before is None, "units that were chosen for what was found suit it"
            before = found
            self._expect(found, misfits)
        self._finish(step, found, losses)
        self.counts = Counts(steps=self.counts.steps + 1, again=self.counts.again + (before is not None))

    def _pass(self, step: int, batches: Sequence[Any] | None, losses: dict[int, torch.Tensor]) -> Iterator[Microbatch]:
        """Every round of this rank once."""
        owned = self.share.owned
        rounds = self._sums.rounds(len(owned), self.share.rounds)
        self._sums.begin([self._format.unit(known or 0) for known in self._expected])
        for turn in range(rounds):
            place = min(turn, len(owned) - 1)
            batch = batches[place] if batches is not None else None
            microbatch = Microbatch(step=step, index=owned[place], counted=turn < len(owned), batch=batch)
            rng.begin_anew(microbatch_seed(seed=self._seed, step=step, microbatch=microbatch.index))
            with self._sums.microbatch(counted=microbatch.counted, last=turn == rounds - 1):
                yield microbatch
            if microbatch.loss is None:
                raise Unfinished(f"microbatch {microbatch.index} of step {step}: call backward(loss) on it")
            losses[microbatch.index] = microbatch.loss

    def clip_grad_norm_(self, norm_max: float) -> float:
        """Scale the gradients down to a global norm of ``norm_max`` and return what it was. A collective if sharded."""
        norm = global_norm(self._sums.parameters, self._sums.shards)
        clip_(self._sums.parameters, norm, norm_max)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on."""
        return {
            "microbatches": self.share.logical,
            "seed": self._seed,
            "expected": dict(zip(self._sums.names, self._expected, strict=True)),
            "surroundings": dict(self._here),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there. Raises :class:`SettingsChanged`; other surroundings are only said."""
        mine = {"microbatches": self.share.logical, "seed": self._seed}
        for name, value in mine.items():
            if state[name] != value:
                raise SettingsChanged(f"{name} is {value}, the checkpoint was made with {state[name]}")
        if missing := sorted(set(self._sums.names) ^ set(state["expected"])):
            raise SettingsChanged(
                f"{missing[0]} and {len(missing) - 1} more are gradients of only one of script and checkpoint: "
                "another model, or another way to shard it"
            )
        self._expected = [state["expected"][name] for name in self._sums.names]
        self.departures = surroundings.departures(state["surroundings"], self._here)
        if self.departures:
            log.warning("bitwise equal weights end here: %s", "; ".join(self.departures))

    # -- the end of a pass

    def _misfits(self, found: Sequence[int]) -> list[int]:
        """Numbers of the tensors whose units do not suit what was found."""
        return [
            number
            for number, (exponent, expected) in enumerate(zip(found, self._expected, strict=True))
            if ZERO < exponent < NOT_FINITE and (expected is None or not self._format.fits(exponent, expected))
        ]

    def _expect(self, found: Sequence[int], numbers: Sequence[int]) -> None:
        for number in numbers:
            self._expected[number] = found[number]

    def _finish(self, step: int, found: Sequence[int], losses: Mapping[int, torch.Tensor]) -> None:
        self._sums.finish([exponent != UNTOUCHED for exponent in found])
        if NOT_FINITE in found:
            self._keep_only_what_is_not_finite()
        else:
            self._expect(found, [number for number, exponent in enumerate(found) if exponent > ZERO])
        every = torch.zeros(self.share.logical, dtype=torch.float64, device=self._sums.parameters[0].device)
        every[torch.tensor(list(losses), device=every.device)] = torch.stack(list(losses.values())).to(every)
        self._loss = sum(self._gang.add_(every).tolist()) / self.share.logical  # each by one rank, in one order
        rng.begin_anew(microbatch_seed(seed=self._seed, step=step, microbatch=self.share.logical))

    def _keep_only_what_is_not_finite(self) -> None:
        """Infinities and NaN stand where any sum has them; numbers beside them may be inexact, and become 0."""
        for parameter in self._sums.parameters:
            if parameter.grad is not None:
                parameter.grad.masked_fill_(parameter.grad.isfinite(), 0.0)

    def _unequal(self, step: int, found: Sequence[int], before: Sequence[int]) -> str:
        number = next(number for number, pair in enumerate(zip(found, before, strict=True)) if pair[0] != pair[1])
        return (
            f"step {step} was computed twice and gave other gradients for {self._sums.names[number]} the second "
            "time: read samples by step and index only, and call reproducible.use_deterministic_kernels()"
        )


class Sums(Protocol):
    """How a kind of model sums its gradients."""

    shards: Gang | None
    """The ranks that hold the shards of one whole gradient; None if each rank holds it."""
    names: tuple[str, ...]
    parameters: list[nn.Parameter]

    def rounds(self, owned: int, most: int) -> int: ...
    def begin(self, units: list[float]) -> None: ...
    def microbatch(self, *, counted: bool, last: bool) -> Any: ...
    def peaks(self) -> list[torch.Tensor | None]: ...
    def finish(self, touched: list[bool]) -> None: ...


def _sums(model: nn.Module, logical: int, gang: Gang) -> Sums:
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:  # before torch 2.6
        return ReplicatedGradients(model, logical=logical, gang=gang)
    if any(isinstance(module, FSDPModule) for module in model.modules()):
        from evertrain.trainer.reproducible.sharded import ShardedGradients

        return ShardedGradients(model, logical=logical, gang=gang)
    return ReplicatedGradients(model, logical=logical, gang=gang)


def _exponent(peak: torch.Tensor | None) -> int:
    if peak is None:
        return UNTOUCHED
    value = float(peak)
    if not value < 2.0**EXPONENT_MAX:
        return NOT_FINITE
    return math.frexp(value)[1] if value else ZERO
