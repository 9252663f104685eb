"""What a script declares as its resumable state: checked, captured as values and tensors, put back. Not for files.

Errors::

    StateUnfit (ValueError)         as plain.py has it
     +-- CheckpointMismatch         the checkpoint holds other parts, other shapes, or another dataset
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import torch

from evertrain.trainer.plain import StateUnfit, flatten, rebuild

LOOP: Final = "loop"
"""The part that the library adds: step, tokens, seed, configuration."""
RNG: Final = "rng"


class CheckpointMismatch(StateUnfit):
    """The checkpoint is sound, but is not this script's: other parts, other shapes, another dataset."""


class Stateful(Protocol):
    """Anything whose state goes out and in as a dictionary."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state_dict: Any, /) -> object: ...


@runtime_checkable
class CountsSamples(Protocol):
    """A part that knows how many samples the whole job has consumed: a sampler whose order is a plan."""

    def consumed(self, step: int, /) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A moment of the state on one rank: values as texts, and tensors that are not copied."""

    values: Mapping[str, str]
    """By part. Alike on all ranks but for those of :attr:`own`."""
    tensors: Mapping[str, torch.Tensor]
    """By place."""
    own: frozenset[str]
    """Parts of this rank alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What must survive, by name, and what it refers to."""

    stateful: Mapping[str, Stateful]
    """Alike on all ranks, but for how tensors are sharded."""
    per_rank: Mapping[str, Stateful] = field(default_factory=dict)
    """Each rank's own. A checkpoint with such a part fits its own world size only."""
    config: Mapping[str, Any] = field(default_factory=dict)
    dataset_sha256: str = ""

    @property
    def config_sha256(self) -> str:
        """Digest of the configuration's JSON; empty without one."""
        return hashlib.sha256(canonical(self.config)).hexdigest() if self.config else ""

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Declared parts that are optimizers of torch."""
        return [part for part in self.stateful.values() if isinstance(part, torch.optim.Optimizer)]

    def consumed(self, step: int) -> int:
        """Samples that the whole job has consumed when ``step`` steps are complete; 0: no part knows."""
        return next((part.consumed(step) for part in self.stateful.values() if isinstance(part, CountsSamples)), 0)

    def lasting(self) -> set[int]:
        """Addresses of tensors that nothing but an optimizer's step changes: parameters, and what it keeps of them."""
        known: set[int] = set()
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                known |= {address(param) for param in group["params"]}
            for state in optimizer.state.values():
                known |= {address(value) for value in state.values() if isinstance(value, torch.Tensor)}
        return known

    def capture(self, loop: Mapping[str, Any], *, rng: Mapping[str, Any], rank: int) -> State:
        """The whole state now. Raises :class:`StateUnfit`, or what a part's ``state_dict`` raises."""
        names = self._parameter_names()
        values: dict[str, str] = {}
        tensors: dict[str, torch.Tensor] = {}
        own = {own_name(part, rank): state.state_dict() for part, state in self.per_rank.items()}
        own[own_name(RNG, rank)] = rng
        header = {**loop, "config": canonical(self.config).decode(), "dataset_sha256": self.dataset_sha256}
        shared = {part: _state_of(stateful, names) for part, stateful in self.stateful.items()}
        for part, state in {LOOP: header, **shared, **own}.items():
            values[part], found = flatten(state, part)
            tensors.update(found)
        return State(values=values, tensors=tensors, own=frozenset(own))

    def templates(self) -> dict[str, torch.Tensor]:
        """Live tensors by place, as far as they exist: they tell which part of each this rank holds."""
        names = self._parameter_names()
        found: dict[str, torch.Tensor] = {}
        for part, stateful in self.stateful.items():
            found.update(flatten(_state_of(stateful, names), part)[1])
            if isinstance(stateful, torch.optim.Optimizer):
                for group in stateful.param_groups:
                    found.update(
                        {f"{part}/state/{names[id(param)]}": param for param in group["params"] if id(param) in names}
                    )
        return found

    def require_match(self, held: Mapping[str, str], *, path: str, rank: int) -> None:
        """Raise :class:`CheckpointMismatch` unless the checkpoint at ``path`` holds these parts and this dataset."""
        shared = {part for part in held if not is_own(part)} - {LOOP}
        if missing := sorted(set(self.stateful) - shared):
            raise CheckpointMismatch(f"{path} has no state of {', '.join(missing)}, which the script declares")
        if extra := sorted(shared - set(self.stateful)):
            raise CheckpointMismatch(f"{path} holds state of {', '.join(extra)}: declare it, or start a new job")
        if missing := sorted(part for part in self.per_rank if own_name(part, rank) not in held):
            raise CheckpointMismatch(
                f"{path} has no state of {missing[0]} for rank {rank}: what is declared with per_rank can only be "
                "restored at the world size at which it was saved"
            )
        dataset = json.loads(held[LOOP])["dataset_sha256"]
        if dataset != self.dataset_sha256:
            raise CheckpointMismatch(
                f"{path} was trained on dataset {dataset or '(none)'}, "
                f"the script declares {self.dataset_sha256 or '(none)'}: going on would mix two experiments"
            )

    def config_changes(self, loop: Mapping[str, Any]) -> list[str]:
        """The configuration's top-level keys that differ from the checkpoint's."""
        before, now = json.loads(loop["config"]), json.loads(canonical(self.config))
        return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))

    def put_back(
        self, held: Mapping[str, str], tensor_at: Callable[[str], torch.Tensor], *, path: str, rank: int
    ) -> None:
        """Load every part. Raises :class:`CheckpointMismatch`, naming the part."""
        names = self._parameter_names()
        theirs = {part: (part, stateful) for part, stateful in self.stateful.items()}
        theirs |= {own_name(part, rank): (part, stateful) for part, stateful in self.per_rank.items()}
        for place, (part, stateful) in theirs.items():
            state = rebuild(held[place], tensor_at)
            try:
                _load(stateful, state, names)
            except (RuntimeError, ValueError, KeyError, TypeError) as err:
                raise CheckpointMismatch(f"{part} of {path} does not fit the script's {part}: {err}") from err

    def _parameter_names(self) -> dict[int, str]:
        """Names of parameters by id: an optimizer counts them, and a count differs where a rank has only some."""
        return {
            id(param): name if part == "model" else f"{part}:{name}"
            for part, stateful in reversed(list(self.stateful.items()))
            if isinstance(stateful, torch.nn.Module)
            for name, param in _named(unwrapped(stateful).named_parameters())
        }


def own_name(part: str, rank: int) -> str:
    """How a rank's own part is called."""
    return f"{part}@{rank:05d}"


def is_own(part: str) -> bool:
    """Whether a part of that name is one rank's own."""
    return "@" in part


def canonical(config: Mapping[str, Any]) -> bytes:
    """The one JSON form of a configuration."""
    try:
        return json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    except TypeError as err:
        raise StateUnfit(f"config holds a value that JSON has no form for: {err}") from err


def unwrapped(part: Any) -> Any:
    """The model inside DistributedDataParallel or torch.compile: its names must not depend on how it is run."""
    while True:
        if isinstance(part, torch.nn.parallel.DistributedDataParallel):
            part = part.module
        elif isinstance(part, torch.nn.Module) and hasattr(part, "_orig_mod"):
            part = part._orig_mod
        else:
            return part


def _named(items: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    # Inserted by torch.compile and by activation checkpointing, which may be switched on or off between two runs.
    return [(name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", ""), item) for name, item in items]


def _state_of(stateful: Stateful, names: Mapping[int, str]) -> Any:
    if isinstance(stateful, torch.optim.Optimizer):
        return _named_optimizer(stateful, names)
    return unwrapped(stateful).state_dict()


def _parameters(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> list[str]:
    """The optimizer's parameters in its own order, by name; what no declared module has goes by its number."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return [names.get(id(param), f"#{at}") for at, param in enumerate(params)]


def _named_optimizer(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, Any]:
    ordered = _parameters(optimizer, names)
    state = optimizer.state_dict()
    groups = [{**group, "params": [ordered[at] for at in group["params"]]} for group in state["param_groups"]]
    return {**state, "state": {ordered[at]: each for at, each in state["state"].items()}, "param_groups": groups}


def _load(stateful: Stateful, state: Any, names: Mapping[int, str]) -> None:
    if not isinstance(stateful, torch.optim.Optimizer):
        unwrapped(stateful).load_state_dict(state)
        return
    stateful.load_state_dict(_numbered(state, stateful, names))


def _numbered(state: dict[str, Any], optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, Any]:
    """The state in the order of this optimizer's groups: torch itself goes by position alone."""
    ordered = _parameters(optimizer, names)
    group_of = {name: group for group in state["param_groups"] for name in group["params"]}
    if unknown := sorted(set(group_of) ^ set(ordered)):
        raise ValueError(f"parameter {unknown[0]} is not in both")
    groups, at = [], 0
    for mine in optimizer.param_groups:
        own = ordered[at : at + len(mine["params"])]
        theirs = group_of[own[0]] if own else {}
        if any(group_of[name] is not theirs for name in own):
            raise ValueError(f"{own[0]} and others of its group were in different groups")
        groups.append({**theirs, "params": list(range(at, at + len(own)))})
        at += len(own)
    by_number = {at: state["state"][name] for at, name in enumerate(ordered) if name in state["state"]}
    return {**state, "state": by_number, "param_groups": groups}


def address(tensor: torch.Tensor) -> int:
    """Where its first byte lies on this rank."""
    local = getattr(tensor, "_local_tensor", tensor)
    return int(local.data_ptr())
