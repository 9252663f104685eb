"""What a job says of checkpoints that its script writes by itself, and what cannot work. Pure; reads no checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

STEP: Final = "{step}"
_GLOB: Final = re.compile(r"[*?\[]")


class SaveKind(StrEnum):
    """How a script saves."""

    TORCH_SAVE = "torch_save"
    """One file, by ``torch.save``."""
    DCP = "dcp"
    """A folder, by ``torch.distributed.checkpoint``."""
    FOLDER = "folder"
    """A folder of files, complete when a marker or a list of files is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAdapter:
    """A script's own checkpoints."""

    kind: SaveKind = SaveKind.TORCH_SAVE
    pattern: str
    """Their paths, such as ``out/step-{step}.pt``, or with ``*``: then the last number of a name is its step."""
    step_key: str = ""
    """Key of the saved state that holds its step, to be compared with the name's."""
    marker: str = ""
    """Of a folder: the file that is written last."""
    require: tuple[str, ...] = ()
    """Of a folder: files without which it is not complete."""
    settle_s: float = 5.0
    """What did not change for so long is read, and counts if it is whole."""


def faults(
    *, kind: SaveKind, pattern: str, step_key: str, marker: str, require: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """The settings that cannot work: the name of each, and why."""
    folder, _, last = pattern.rpartition("/")
    if not last:
        yield "pattern", f"{pattern!r} names no file or folder: end it as in out/step-{STEP}.pt"
    if _GLOB.search(folder) or STEP in folder:
        yield "pattern", f"{pattern!r}: only its last part may vary, since one folder is watched"
    if kind is SaveKind.FOLDER and not (marker or require):
        yield "marker", "a folder needs a marker or a list of required files: nothing else tells that it is complete"
    if kind is not SaveKind.FOLDER and (marker or require):
        yield "marker", "marker and require are for kind folder: the other kinds tell by themselves"
    if kind is SaveKind.FOLDER and step_key:
        yield "step_key", "it is for kinds torch_save and dcp: a folder's files can be anything"
