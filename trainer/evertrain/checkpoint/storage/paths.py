"""Paths below a storage's root, checked. Pure; knows of no backend."""

from __future__ import annotations


def parts_of(path: str) -> tuple[str, ...]:
    """The folders and the name that ``path`` consists of; () for the root.

    Raises ValueError for one that leads out of the root or is written in
    another than the one plain way: names come from files that may be corrupt.
    """
    if not path:
        return ()
    parts = tuple(path.split("/"))
    if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise ValueError(f"{path!r} is not a plain path below the storage's root")
    return parts


def file_parts_of(path: str) -> tuple[str, ...]:
    """Those of a file's or a checkpoint's path, which the root is not. Raises ValueError."""
    parts = parts_of(path)
    if not parts:
        raise ValueError("the storage's root itself can neither be written nor removed")
    return parts


def joined(*parts: str) -> str:
    """One path of several, of which some may be empty."""
    return "/".join(part for part in parts if part)
