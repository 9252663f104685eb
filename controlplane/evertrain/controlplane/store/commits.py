"""What every store checks of a commit and how it recognises one. Not for storing any."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from evertrain.controlplane.store.api import CANDIDATE_BYTES_MAX, COMMIT_BYTES_MAX, WRITES_MAX, TooLarge, Write


@dataclass(frozen=True, slots=True)
class Mark:
    """A store's newest commit: how many there have been, and which batch that one was.

    It is written with each commit. Only the leader commits, so a mark that is
    one ahead of what the leader knows of is its own batch whose outcome it
    never learned.
    """

    number: int = 0
    digest: str = ""

    def encode(self) -> bytes:
        """As stored; readable with the store's own tools."""
        return f"{self.number} {self.digest}".encode()

    @staticmethod
    def decode(raw: bytes) -> Mark:
        """The inverse of :meth:`encode`; nothing stored means no commit yet."""
        if not raw:
            return Mark()
        number, digest = raw.decode().split(" ")
        return Mark(int(number), digest)


def learn(stored: Mark, *, known: int, digest: str) -> int:
    """How many commits the leader knows of once it has looked, before it commits the batch of ``digest``.

    An unsettled batch that is in counts from now on, unless it is the batch at
    hand: that one is told by :func:`is_in`.
    """
    return known if stored.digest == digest else stored.number


def is_in(stored: Mark, *, known: int, digest: str) -> bool:
    """Whether the store holds this very batch as the one commit that the leader doesn't know of."""
    if stored.number == known:
        return False
    assert stored == Mark(known + 1, digest), f"{stored}: the leader knows of {known} commits and has not looked since"
    return True


def digest_of(writes: Sequence[Write]) -> str:
    """Tells one batch from another."""
    digest = hashlib.sha256()
    for write in writes:
        value = b"-" if write.value is None else b"+" + write.value
        for part in (write.key.kind.encode(), write.key.name.encode(), value):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def check_batch(writes: Sequence[Write]) -> None:
    """Raise TooLarge for a batch that not every store would take."""
    assert len({write.key for write in writes}) == len(writes), "one commit writes a record once"
    if len(writes) > WRITES_MAX:
        raise TooLarge(f"{len(writes)} writes in one commit, at most {WRITES_MAX}: split the batch")
    size = sum(len(write.key.name.encode()) + len(write.value or b"") for write in writes)
    if size > COMMIT_BYTES_MAX:
        raise TooLarge(f"{size} bytes in one commit, at most {COMMIT_BYTES_MAX}: split the batch")


def check_address(address: str) -> None:
    """Raise TooLarge for a candidate's address that is none."""
    if len(address.encode()) > CANDIDATE_BYTES_MAX:
        raise TooLarge(f"candidate address of {len(address.encode())} bytes, at most {CANDIDATE_BYTES_MAX}")
