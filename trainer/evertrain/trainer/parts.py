"""What a script declares as its resumable state: checked, captured into shards, put back. Not for files.

Errors::

    StateUnfit (ValueError)         a part cannot be saved, or does not fit the checkpoint; the text names it
     +-- NotPlain                   a value that the restricted loader of torch would refuse
     +-- CheckpointMismatch         the checkpoint holds other parts, other shapes, or another dataset
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch

LOOP_SHARD: Final = "loop.pt"
_OWN_SHARDS: Final = ("model", "optimizer")
"""Parts large enough for a shard of their own; the others share :data:`LOOP_SHARD`."""
_PLAIN: Final = (bool, int, float, str, bytes, type(None))


class StateUnfit(ValueError):
    """Base of what can be wrong with declared state."""


class NotPlain(StateUnfit):
    """A value that is neither a tensor nor plain: it could only be loaded by running code from the file."""


class CheckpointMismatch(StateUnfit):
    """The checkpoint is sound, but is not this script's: other parts, other shapes, another dataset."""


class Stateful(Protocol):
    """Anything whose state goes out and in as a dictionary."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state_dict: Any, /) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What must survive, by name, and what it refers to."""

    stateful: Mapping[str, Stateful]
    config: Mapping[str, Any] = field(default_factory=dict)
    dataset_sha256: str = ""

    @property
    def config_sha256(self) -> str:
        """Digest of the configuration's JSON; empty without one."""
        return hashlib.sha256(canonical(self.config)).hexdigest() if self.config else ""

    def shard_names(self) -> tuple[str, ...]:
        """The shards these parts are saved in, the ranks' own aside."""
        return (*(shard_name(part) for part in _OWN_SHARDS if part in self.stateful), LOOP_SHARD)

    def capture(self, loop: Mapping[str, Any]) -> dict[str, Any]:
        """The shards' contents: each large part's, and ``loop`` with the small ones. Raises :class:`NotPlain`."""
        states = {name: unwrapped(part).state_dict() for name, part in self.stateful.items()}
        for name, state in states.items():
            require_plain(state, name)
        shards: dict[str, Any] = {shard_name(name): states.pop(name) for name in _OWN_SHARDS if name in states}
        shards[LOOP_SHARD] = {
            **loop,
            "parts": states,
            "config": canonical(self.config).decode(),
            "dataset_sha256": self.dataset_sha256,
        }
        return shards

    def require_match(self, shards: Mapping[str, Any], *, path: str) -> None:
        """Raise :class:`CheckpointMismatch` unless the checkpoint at ``path`` holds these parts and this dataset."""
        loop = shards[LOOP_SHARD]
        held = set(loop["parts"]) | {name for name in _OWN_SHARDS if shard_name(name) in shards}
        if missing := sorted(set(self.stateful) - held):
            raise CheckpointMismatch(f"{path} has no state of {', '.join(missing)}, which the script declares")
        if extra := sorted(held - set(self.stateful)):
            raise CheckpointMismatch(f"{path} holds state of {', '.join(extra)}: declare it, or start a new job")
        if loop["dataset_sha256"] != self.dataset_sha256:
            raise CheckpointMismatch(
                f"{path} was trained on dataset {loop['dataset_sha256'] or '(none)'}, "
                f"the script declares {self.dataset_sha256 or '(none)'}: going on would mix two experiments"
            )

    def config_changes(self, shards: Mapping[str, Any]) -> list[str]:
        """The configuration's top-level keys that differ from the checkpoint's."""
        before, now = json.loads(shards[LOOP_SHARD]["config"]), json.loads(canonical(self.config))
        return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))

    def put_back(self, shards: Mapping[str, Any], *, path: str) -> None:
        """Load every part. Raises :class:`CheckpointMismatch`, naming the part."""
        small = shards[LOOP_SHARD]["parts"]
        for name, part in self.stateful.items():
            state = small[name] if name in small else shards[shard_name(name)]
            try:
                unwrapped(part).load_state_dict(state)
            except (RuntimeError, ValueError, KeyError, TypeError) as err:
                raise CheckpointMismatch(f"{name} of {path} does not fit the script's {name}: {err}") from err


def shard_name(part: str) -> str:
    """File name of a part's own shard."""
    return f"{part}.pt"


def rng_shard_name(rank: int) -> str:
    """File name of a rank's shard."""
    return f"rng-{rank:05d}.pt"


def canonical(config: Mapping[str, Any]) -> bytes:
    """The one JSON form of a configuration."""
    try:
        return json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    except TypeError as err:
        raise StateUnfit(f"config holds a value that JSON has no form for: {err}") from err


def unwrapped(part: Stateful) -> Stateful:
    """The model inside DistributedDataParallel: its names must not depend on how many ranks train it."""
    if isinstance(part, torch.nn.parallel.DistributedDataParallel):
        module: torch.nn.Module = part.module
        return module
    return part


def require_plain(state: object, where: str) -> None:
    """Raise :class:`NotPlain` with the key of the first value that ``weights_only`` loading would refuse."""
    for key, leaf in _leaves(state, where):
        if type(leaf) in (torch.Tensor, torch.nn.Parameter) or type(leaf) in _PLAIN:
            continue
        if not _loads_restricted(leaf):
            kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
            raise NotPlain(f"{key} is a {kind}: only tensors and plain values can be saved; convert it in state_dict()")


def _leaves(value: object, where: str) -> Iterator[tuple[str, object]]:
    if type(value) in (dict, OrderedDict):
        assert isinstance(value, dict)
        for key, item in value.items():
            yield f"{where} (a key)", key
            yield from _leaves(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        assert isinstance(value, (list, tuple))
        for index, item in enumerate(value):
            yield from _leaves(item, f"{where}[{index}]")
    else:
        yield where, value


def _loads_restricted(value: object) -> bool:
    """Try it: the list of what torch's restricted loader takes grows from release to release."""
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        buffer.seek(0)
        torch.load(buffer, weights_only=True)
    except (pickle.PickleError, RuntimeError, TypeError, AttributeError, NotImplementedError):
        return False
    return True
