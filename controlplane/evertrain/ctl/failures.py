"""How a command can fail, each with its exit code. The text says what happened, where, and what to do next.

Errors::

    CtlError
     +-- Refused          1  the coordinator, or this machine, said no
     |    +-- Forgotten        what happened that long ago is no longer kept
     +-- InvalidInput     2  what was typed or written cannot be used
     +-- NoCoordinator    3  nobody answers, or nobody leads
     +-- NotFound         4  no job or node of that name
     +-- EndedBadly       5  the job that was waited for failed or was cancelled
     +-- DeadlineExceeded 6  the time given ran out
     +-- Detached       130  Ctrl-C while a job was watched; the job goes on
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """What ``ctl`` ends with."""

    OK = 0
    REFUSED = 1
    INVALID = 2
    NO_COORDINATOR = 3
    NOT_FOUND = 4
    ENDED_BADLY = 5
    DEADLINE = 6
    INTERRUPTED = 130
    READER_LEFT = 141
    """As a shell tells of a program that SIGPIPE ended."""


class CtlError(Exception):
    """Base of every error that a person is told; ``hint`` says what to do next."""

    exit: ClassVar[Exit] = Exit.REFUSED
    code: ClassVar[str] = "refused"
    label: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Refused(CtlError):
    """The request was understood and not carried out."""


class Forgotten(Refused):
    """A stream cannot go on where it stopped: the coordinator no longer keeps what followed."""


class InvalidInput(CtlError):
    """Nothing was asked of anybody, or the coordinator found the request malformed."""

    exit = Exit.INVALID
    code = "invalid"


class NoCoordinator(CtlError):
    """No coordinator answered in time, or none leads."""

    exit = Exit.NO_COORDINATOR
    code = "no_coordinator"


class NotFound(CtlError):
    """There is no such thing."""

    exit = Exit.NOT_FOUND
    code = "not_found"


class EndedBadly(CtlError):
    """The job that was waited for did not succeed."""

    exit = Exit.ENDED_BADLY
    code = "ended_badly"


class DeadlineExceeded(CtlError):
    """Somebody was there, but the answer or the end did not come in time."""

    exit = Exit.DEADLINE
    code = "deadline"


class Detached(CtlError):
    """A person stopped watching; nothing went wrong."""

    exit = Exit.INTERRUPTED
    code = "detached"
    label = "note"
