"""Digests of checkpoint bytes, by name. Not for the manifest's own digest, which is always SHA-256 (manifest.py).

``xxh3-128`` is the default where the package xxhash is installed: faster than memory is read, and it finds whatever
chance does to bytes. Who must find out what an attacker does takes ``blake3``
or ``sha256``.

Errors::

    DigestUnavailable (RuntimeError)    the record names a function that this installation does not have
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable
from typing import Final, Protocol

from evertrain.checkpoint.manifest import Entry

XXH3_128: Final = "xxh3-128"
BLAKE3: Final = "blake3"
SHA256: Final = "sha256"


class DigestUnavailable(RuntimeError):
    """The digest cannot be made here; says nothing about the bytes."""


class Hasher(Protocol):
    """A digest in the making."""

    def update(self, data: memoryview, /) -> object:
        """Take in more bytes."""
        ...

    def hexdigest(self) -> str:
        """Of all bytes so far."""
        ...


def default() -> str:
    """The quickest that is installed here."""
    return XXH3_128 if importlib.util.find_spec("xxhash") is not None else SHA256


def hasher(name: str) -> Hasher:
    """A new digest of that name. All of them let other threads run while they work on large buffers.

    Raises :class:`DigestUnavailable`.
    """
    try:
        match name:
            case "xxh3-128":
                import xxhash

                return xxhash.xxh3_128()
            case "blake3":
                import blake3

                return blake3.blake3()
            case "sha256":
                return hashlib.sha256()
            case _:
                raise DigestUnavailable(
                    f"digest {name!r} is not known here: a newer version wrote it; update Evertrain"
                )
    except ImportError as err:
        raise DigestUnavailable(f"digest {name!r} needs the package {err.name}: pip install {err.name}") from err


def digest(name: str, buffer: memoryview) -> str:
    """The digest of ``buffer``, in hex."""
    made = hasher(name)
    made.update(buffer)
    return made.hexdigest()


def content_digest(entries: Iterable[Entry]) -> str:
    """One digest for all that the entries hold and where it belongs, in hex.

    Equal in two checkpoints if the tensors are, whatever their step is.
    """
    made = hashlib.sha256()
    for entry in entries:
        parts = [entry.name, entry.dtype, entry.shape, entry.offsets, entry.sizes, entry.bytes, entry.digests]
        made.update(json.dumps(parts).encode() + b"\n")
    return made.hexdigest()
