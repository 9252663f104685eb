"""What the launcher and the processes that it has forked for it tell each other. Framed as contract.wire.

A message that needs file descriptors travels with them (SCM_RIGHTS).
"""

from __future__ import annotations

from dataclasses import dataclass

from evertrain.contract.launch import GangPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """To the spare: fork one process for each socket that comes with this, and give it that socket."""

    keeper: bool = False
    """It is to serve stores; else it is to wait for a seat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSeat:
    """To a forked process: be this worker. With it comes the pipe for its output."""

    generation: int
    place: GangPlace
    local_rank: int


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
