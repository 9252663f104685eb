"""What a storage of checkpoints can do, and what can go wrong with it. Pure; the backends are beside it.

Paths are relative to the storage's root, with ``/`` between their parts. All
calls block; each backend bounds them with its deadline. A call that returned
without an error is durable.

Errors::

    StorageError (OSError)
     +-- Missing            the file is not there, and the storage is
     +-- AlreadyThere       create() found the name taken
     +-- StorageFull        no space, no inodes, or a quota
     +-- NotWritable        read-only mount, no permission
     +-- Unreachable        stale handle, mount that is not there, I/O error, timeout, server that does not answer:
                            says nothing about what is stored; worth another try later
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Protocol


class StorageError(OSError):
    """Base of what can be wrong with a storage. Its text names the path and what to do next."""


class Missing(StorageError):
    """There is no such file or folder, on a storage that answers."""


class AlreadyThere(StorageError):
    """The name is taken; what has it was not touched."""


class StorageFull(StorageError):
    """No space, no inodes left, or a quota is used up."""


class NotWritable(StorageError):
    """The mount is read-only, or permission is missing."""


class Unreachable(StorageError):
    """The storage does not answer, or not now: what is on it may be whole."""


class Storage(Protocol):
    """A folder of checkpoints, wherever it is."""

    @property
    def url(self) -> str:
        """Where it is, as a person may type it. Never with credentials."""
        ...

    def write(self, path: str, data: Iterable[memoryview]) -> None:
        """Write a file, replacing any of that name; durable when it returns.

        It is for files that nobody reads before the commit: a reader may see
        it half-written meanwhile, and what a failed call leaves is undefined.
        A piece need not be valid for longer than until the next is asked for.
        """
        ...

    def create(self, path: str, data: bytes) -> None:
        """Write a small file whole, if there is none of that name; readers see all of it or nothing.

        Of several that try at once exactly one succeeds. Raises
        :class:`AlreadyThere`; also when an earlier try of the same call went
        through unnoticed and the content differs (with equal content it returns).
        """
        ...

    def read(self, path: str, *, bytes_max: int) -> bytes:
        """The whole of a small file. Raises ValueError when it is larger than ``bytes_max``."""
        ...

    def read_into(self, path: str, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the file's bytes from ``start`` on. Raises EOFError when it ends before."""
        ...

    def stream(self, path: str, size: int) -> Generator[memoryview, None, None]:
        """The first ``size`` bytes of a file in pieces, as fast as the storage reads; each until the next is asked for.

        Close it if it is not read to the end. Raises EOFError when the file ends before.
        """
        ...

    def size(self, path: str) -> int:
        """Bytes of a file."""
        ...

    def list(self, path: str) -> list[str]:
        """Names of the files and folders directly in a folder, sorted; empty if there is no such folder."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing happens if it is not there.

        A folder with a commit marker loses that first, so that a half-deleted
        checkpoint can't be taken for a whole.
        """
        ...

    @property
    def files_at_once(self) -> int:
        """How many files it reads faster than one after the other."""
        ...

    def free_bytes(self) -> int | None:
        """Space left; None where the storage cannot say."""
        ...
