"""What the launcher and the two processes it forks its workers and stores from tell each other. Framed as contract.wire.

A message that starts processes travels with file descriptors (SCM_RIGHTS): a
worker's output pipe for each rank, or the keeper's socket.
"""

from __future__ import annotations

from dataclasses import dataclass

from evertrain.contract.launch import GangPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkWorkers:
    """Fork the workers of one generation. With it come their output pipes, in the order of local ranks."""

    generation: int
    place: GangPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkKeeper:
    """Fork the process that serves stores. With it comes its socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """The spare begins to import this module."""

    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """The spare can fork."""

    threads: int
    """Threads it runs; more than one was started by an import and does not exist in a worker."""
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """The spare cannot get warm, and trying again would not help."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The processes exist and are children of the launcher."""

    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkFailed:
    """None of the processes asked for lives."""

    error: str


SPARE_WORDS = (Importing, Warm, Unusable, Forked, ForkFailed)
SpareWord = Importing | Warm | Unusable | Forked | ForkFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStore:
    """Serve a store that nobody has used. Port 0: any free one."""

    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseStore:
    """The generation that used this store is over."""

    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOpen:
    """Answers an OpenStore for ``asked``."""

    asked: int
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed:
    """Answers an OpenStore for ``asked``."""

    asked: int
    error: str


KEEPER_WORDS = (StoreOpen, StoreFailed)
KeeperWord = StoreOpen | StoreFailed
