"""What a checker is, and what it reports. Not for any promise in particular.

A checker is told each observation of the kinds it asks for, and each commit in
decoded form. It keeps what it needs of what is alive, and nothing of what has been.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from evertrain.chaos.sim.check.books import Books, Changed
from evertrain.chaos.sim.history import Observation

Seen: TypeAlias = Observation | Changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A promise that was not kept."""

    at_s: float
    invariant: str
    """The promise, in plain words; the same text for the same promise."""
    text: str
    job: str = ""
    """Name of the job concerned, if there is one."""
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What checkers stand on."""

    books: Books
    report: Callable[[Violation], None]
    now: Callable[[], float]


class Checker(ABC):
    """Watches over one promise."""

    invariant: ClassVar[str]
    sees: ClassVar[tuple[type, ...]]
    """The kinds of observations it is told."""

    def __init__(self, ground: Ground) -> None:
        self.books = ground.books
        self._ground = ground

    @abstractmethod
    def see(self, at_s: float, what: Seen) -> None:
        """Something happened."""

    def finish(self) -> None:
        """The run is over: report what could only be told at its end."""
        return

    def broken(self, text: str, *, job: str = "", node: str = "") -> None:
        """Report that the promise was not kept. ``job`` may be a name or an id."""
        self._ground.report(
            Violation(
                at_s=self._ground.now(),
                invariant=self.invariant,
                text=text,
                job=job.rpartition(".")[0] or job,
                node=node,
            )
        )
