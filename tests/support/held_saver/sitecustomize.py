"""Loaded by every Python of a test's job: a saver stops itself (SIGSTOP) at the point of a save that the test names.

The point is the content of the file ``point`` in the folder of ``HELD_SAVER``,
for instance ``write rank-00001.bin``. Whoever comes there first takes it, by
renaming it to ``held-PID``, and stops. Does nothing in any other process.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

_FOLDER = os.environ.get("HELD_SAVER", "")
DIGEST = "digest"
"""The copy is whole, and not sealed."""


def _reached(doing: str, path: str = "") -> None:
    point = Path(_FOLDER, "point")
    try:
        if point.read_text() != f"{doing} {path.rpartition('/')[2]}".strip():
            return
        point.rename(point.with_name(f"held-{os.getpid()}"))
    except FileNotFoundError:
        return  # no point is named, or another saver was faster
    os.kill(os.getpid(), signal.SIGSTOP)


def _install() -> None:
    from evertrain.checkpoint import writing
    from evertrain.checkpoint.storage.posix import PosixStorage

    digests_of, write, create, remove = writing.digests_of, PosixStorage.write, PosixStorage.create, PosixStorage.remove

    def held_digests(data: memoryview, *, hash_name: str) -> tuple[str, ...]:
        _reached(DIGEST)
        return digests_of(data, hash_name=hash_name)

    def held_write(self: PosixStorage, path: str, data: Iterable[memoryview]) -> None:
        def in_parts() -> Iterable[memoryview]:
            for piece in data:
                yield piece[: len(piece) // 2]
                _reached("write", path)  # in the middle of the file
                yield piece[len(piece) // 2 :]

        write(self, path, in_parts())

    def held(doing: str, change: Callable[..., None]) -> Callable[..., None]:
        def before(self: PosixStorage, path: str, *arguments: bytes) -> None:
            _reached(doing, path)
            change(self, path, *arguments)

        return before

    vars(writing)["digests_of"] = held_digests
    setattr(PosixStorage, "write", held_write)  # noqa: B010
    setattr(PosixStorage, "create", held("create", create))  # noqa: B010
    setattr(PosixStorage, "remove", held("remove", remove))  # noqa: B010


if _FOLDER and "evertrain.checkpoint.saver" in sys.orig_argv:
    _install()
