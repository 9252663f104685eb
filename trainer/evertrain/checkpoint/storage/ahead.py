"""Reads a file from its beginning to its end, some pieces ahead of who takes them. Knows of no backend."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

BUFFERS_PER_READ: Final = 2
"""And one more: so that no read waits for who takes the pieces, and nobody for a read that could have begun."""


def read_ahead(
    fill: Callable[[int, memoryview], None], size: int, *, piece_bytes: int, at_once: int
) -> Generator[memoryview, None, None]:
    """All ``size`` bytes in pieces; each is valid until the next is asked for.

    ``fill`` gets a place in the file and a buffer to fill from there on. It is
    called from ``at_once`` threads, in order of the places. Raises what it does.
    """
    if size <= piece_bytes:  # no thread could help
        whole = memoryview(bytearray(size))
        fill(0, whole)
        yield whole
        return
    starts = iter(range(0, size, piece_bytes))
    reads: deque[tuple[memoryview, int, Future[None]]] = deque()
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="read-ahead")

    def begin(buffer: memoryview) -> None:
        if (start := next(starts, None)) is not None:
            reads.append((buffer, start, pool.submit(fill, start, buffer[: size - start])))

    try:
        for _ in range(BUFFERS_PER_READ * at_once + 1):
            begin(memoryview(bytearray(min(piece_bytes, size))))
        while reads:
            buffer, start, read = reads.popleft()
            read.result()
            yield buffer[: size - start]
            begin(buffer)
    finally:
        pool.shutdown(cancel_futures=True)
