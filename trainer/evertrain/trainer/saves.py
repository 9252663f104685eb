"""The gang's saves over time: copied at a step boundary, submitted when the copy is whole, heard of when it is over.

Not for what the state is (parts.py) nor for when to save (session.py).

Errors::

    SaveFailed (RuntimeError)    raised on every rank alike; nothing is under way of this save
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

import torch

from evertrain.checkpoint import digests
from evertrain.checkpoint.manifest import CheckpointManifest, RankRecord, sha256
from evertrain.checkpoint.request import (
    Abandon,
    CopyLayout,
    Ended,
    Mirror,
    Mirrored,
    Persist,
    PiecePlace,
    Released,
    Save,
    Sealed,
)
from evertrain.checkpoint.writing import SaveFailed
from evertrain.contract import wire
from evertrain.contract.shared_memory import CopiesFolder
from evertrain.trainer.copies import COPIES, COPIES_MIRRORED, Copies, Copy, Copying, Job
from evertrain.trainer.layout import Layout, agree
from evertrain.trainer.mirroring import Mirroring
from evertrain.trainer.parts import Parts, State, address
from evertrain.trainer.peers import Peers
from evertrain.trainer.pieces import Piece, pieces_of
from evertrain.trainer.plain import StateUnfit
from evertrain.trainer.saving import SaverGone, SaverLink

BUSY_WAIT_S: Final = 1.0
"""A save waits so long for a copy that the saver still reads; then it is put off, and tried again without waiting."""
BUSY_WAIT_SHARE: Final = 0.02
"""Or for this share of the time since the last save, if that is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """What saves belong to."""

    root: str
    """Of the job's checkpoints."""
    job: str
    generation: int
    node: int
    """Which of the gang's nodes this is."""
    watches: bool
    """This rank tells its launcher of commits, though it is not the one that commits."""
    keep: int
    """How many committed checkpoints stay, where nobody else removes them; 0: somebody does."""
    restored_step: int | None
    folder: str
    """In shared memory, of the launcher; empty: the library makes one of its own."""
    deadline_s: float
    """From a copy to its commit."""
    copies_to: int | None = None
    """Which of the gang's nodes keeps copies of this one's memory."""


class Begun(Enum):
    """What became of the wish to save."""

    COPYING = auto()
    BUSY = auto()
    """The last saves are still on their way to storage; to be tried again at the next step boundary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a save is to be: a copy in memory alone, or a checkpoint."""

    step: int
    tokens: int
    manifest: CheckpointManifest | None
    """Its form without shards; None: a copy in memory alone."""
    parent: str = ""
    """Folder of the checkpoint before."""


@dataclass(slots=True, kw_only=True)
class _Under:
    """A copy under way on this rank."""

    target: Target
    copy: Copy
    copying: Copying
    state: State
    mirror: Mirror | None
    torn: bool | None = None
    """Whether a tensor changed before its copy was made; None: not looked yet."""


class Given:
    """Copies that were handed to the saver, and what became of them."""

    def __init__(self, link: SaverLink) -> None:
        self.link = link
        self.copies: Copies | None = None
        """Those of the present layout."""
        self.pending: set[int] = set()
        """Steps of saves whose end this rank will hear of."""
        self.mirroring: Mirroring | None = None
        """None: copies are kept on this node alone."""
        self.seal_s = 0.0
        """How long the saver took to seal the last copy."""
        self._ended: list[Ended] = []
        self._handed: dict[str, Abandon] = {}
        """By copy that the saver has: what is to be said of its checkpoint should the saver die."""
        self._succeeded = False
        """A copy of the present layout is whole, and where others keep it, all others have theirs."""

    @property
    def count(self) -> int:
        """How many copies there are to be."""
        return COPIES if self.mirroring is None else COPIES_MIRRORED

    def use(self, copies: Copies | None) -> None:
        """The layout changed."""
        if self.copies is not None:
            self.copies.unpin()
        self.copies, self._succeeded = copies, False

    def reserve(self) -> None:
        """See that what goes with the keepers' copies stays, and what went with those before does not."""
        if self.mirroring is not None and self.copies is not None:
            self.copies.reserved = self.mirroring.reserved
            if self.mirroring.complete:
                self._succeed(self.copies)

    @property
    def busy(self) -> bool:
        """The saver reads a copy."""
        return self.copies is not None and self.copies.busy

    def ended(self) -> list[Ended]:
        """Saves that are over since the last call."""
        found, self._ended = self._ended, []
        return found

    def fail(self, step: int, reason: str) -> None:
        """The save of ``step`` is over without a word of the saver."""
        if step in self.pending:
            self.pending.discard(step)
            self._ended.append(Ended(step=step, failure=reason))

    def not_carried(self, step: int, trouble: str) -> None:
        """The copy of ``step`` did not get to its keeper, or did if ``trouble`` is empty."""
        if self.mirroring is not None:
            self.mirroring.over(step, trouble)

    def listen(self, within_s: float) -> None:
        """Hear what the saver told since; wait for something, at most ``within_s``."""
        if not self.pending and not self.busy:
            return  # nothing is to be heard: most steps are between two saves
        try:
            replies = self.link.replies(within_s=within_s)
        except SaverGone as err:
            self.lost(err)
            return
        for reply in replies:
            match reply:
                case Sealed(step=step, copy=path, seal_s=seal_s):
                    self.seal_s = seal_s
                    self._seal(path, step)
                case Mirrored(step=step, trouble=trouble):
                    self.not_carried(step, trouble)
                case Released(copy=path):
                    self._handed.pop(path, None)
                    if (copy := self._copy(path)) is not None:
                        copy.busy = False
                case Ended():
                    self.pending.discard(reply.step)
                    self._ended.append(reply)

    def hand(self, save: Save, abandon: Abandon | None) -> None:
        """Give it a whole copy; another saver, if this one is dead. Raises :class:`SaverGone`."""
        try:
            self.link.save(save)
        except SaverGone as err:
            self.lost(err)
            self.link.save(save)
        if abandon is not None:
            self._handed[save.copy] = abandon

    def lost(self, err: SaverGone) -> None:
        """The saver is dead, and with it the saves that it had: a new one says so, for others wait for them."""
        handed, self._handed = list(self._handed.values()), {}
        if self.copies is not None:
            self.copies.release_all()
        if self.mirroring is not None:
            self.mirroring.lost()
        with suppress(SaverGone, OSError):  # then the next save fails on all ranks, and says why
            for abandon in handed:
                self.link.abandon(replace(abandon, reason=str(err)))
        for step in sorted(self.pending):
            self.fail(step, str(err))

    def _seal(self, path: str, step: int) -> None:
        copy = self._copy(path)
        if copy is None or self.copies is None:
            return  # of an earlier layout
        copy.step = step
        if self.mirroring is None:
            self._succeed(self.copies)

    def _succeed(self, copies: Copies) -> None:
        """What is there of the present layout can be restored from: what was there before can go."""
        if not self._succeeded:
            self._succeeded = True
            copies.remove_older()

    def _copy(self, path: str) -> Copy | None:
        return None if self.copies is None else self.copies.at(path)


class Saves:
    """Of one generation on this rank. Methods named as collectives are called by all ranks in the same order."""

    def __init__(
        self,
        parts: Parts,
        peers: Peers,
        *,
        whose: Whose,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        folder = whose.folder
        self._parts, self._peers, self._whose, self._clock = parts, peers, whose, clock
        self._own_folder = None if folder else CopiesFolder.of_its_own()
        self._folder = Path(folder) if self._own_folder is None else self._own_folder.path
        self.given = Given(SaverLink(self._folder, remove=self._own_folder is not None))
        self.given.mirroring = Mirroring.connect(peers, folder, copies_to=whose.copies_to, node=whose.node)
        self._pieces: list[Piece] = []
        self._layout: Layout | None = None
        self._layouts = 0
        self._under: _Under | None = None
        self._overlap = bool(parts.optimizers)
        self._hooks = [each.register_step_pre_hook(self._before_step) for each in parts.optimizers]
        self._last_s = clock()
        self.blocked_s = 0.0
        """What the last save cost the training loop."""

    def warm(self) -> None:
        """Start the saver: it takes longer to start than to save."""
        with suppress(SaverGone, OSError):  # the first save tells of it
            self.given.link.start()

    # -- a save begins

    def begin(self, target: Target, loop: Mapping[str, Any], rng: Mapping[str, Any], *, patience_s: float) -> Begun:
        """Copy the present state, or begin to. A collective. Raises :class:`SaveFailed`."""
        began = self._clock()
        self.settle()
        if self._peers.maxima([int(not self._await_free_copy(patience_s))])[0]:
            return Begun.BUSY
        trouble, state, found = self._captured(loop, rng)
        pieces = [piece for piece, _ in found]
        changed = self._layout is None or pieces != self._pieces
        mirroring = self.given.mirroring
        wishes = [
            bool(trouble),
            changed,
            self._reading(),
            *((m.busy, m.failed) if (m := mirroring) else (False, False)),
        ]
        failing, changing, reading, carrying, lost = map(bool, self._peers.maxima([int(each) for each in wishes]))
        if failing:
            raise SaveFailed(self._first(trouble))
        if changing and reading:
            return Begun.BUSY
        if changing:
            self._agree(pieces)
        assert state is not None, "all ranks have it"
        mirror = None if mirroring is None else mirroring.next(target.step, busy=carrying, failed=lost)
        self.given.reserve()
        self._start(target, state, [tensor for _, tensor in found], mirror)
        self._last_s = self._clock()
        self.blocked_s = self._last_s - began
        return Begun.COPYING

    def patience_s(self) -> float:
        """How long a save may wait for the ones before it: little against what it saves."""
        return max(BUSY_WAIT_S, BUSY_WAIT_SHARE * (self._clock() - self._last_s))

    def _captured(
        self, loop: Mapping[str, Any], rng: Mapping[str, Any]
    ) -> tuple[str, State | None, list[tuple[Piece, torch.Tensor]]]:
        """What is wrong, or the state and its pieces."""
        if never := self.given.link.never:
            return never, None, []
        try:
            state = self._parts.capture(loop, rng=rng, rank=self._peers.rank)
            return "", state, [pair for name, tensor in state.tensors.items() for pair in pieces_of(name, tensor)]
        except StateUnfit as err:
            return str(err), None, []
        except Exception as err:  # whatever a part's state_dict raises: it may not keep a rank from the collective
            return f"{type(err).__name__}: {err}", None, []

    def _start(self, target: Target, state: State, tensors: list[torch.Tensor], mirror: Mirror | None) -> None:
        assert self._layout is not None, "it was agreed on"
        assert self.given.copies is not None, "they come with it"
        copy = self.given.copies.free()
        assert copy is not None, "it was waited for"
        copy.begin()
        lasting = self._parts.lasting() if self._overlap else set()
        by_key = {piece.key: tensor for piece, tensor in zip(self._pieces, tensors, strict=True)}
        jobs = [
            Job(source=(source := by_key[piece.key]), lasting=address(source) in lasting)
            for piece in self._layout.pieces
        ]
        copying = Copying(jobs, copy, overlap=self._overlap)
        copy.busy = True
        self._under = _Under(target=target, copy=copy, copying=copying, state=state, mirror=mirror)
        if target.manifest is not None and self._hears:
            self.given.pending.add(target.step)

    @property
    def _hears(self) -> bool:
        return self._peers.rank == 0 or self._whose.watches

    def _await_free_copy(self, patience_s: float) -> bool:
        """Whether there is one, or will be as soon as there is a layout."""
        until = self._clock() + patience_s
        copies = self.given.copies
        while copies is not None and copies.free() is None:
            if (left_s := until - self._clock()) <= 0:
                return False
            self.given.listen(left_s)
        return True

    def _reading(self) -> bool:
        """Whether the saver still reads a copy of the old layout."""
        self.given.listen(0.0)
        return self.given.busy

    def _agree(self, pieces: list[Piece]) -> None:
        """Find a new layout and room for it. A collective. Raises :class:`SaveFailed` on all ranks alike."""
        trouble = ""
        try:
            self._layout, self._pieces = agree(self._peers, pieces, node=self._whose.node), pieces
            self._layouts += 1
            label = f"{self._whose.generation}-{self._layouts}"
            self.given.use(Copies(self._folder, self._peers.rank, self._layout, label=label, count=self.given.count))
            self._layout_path.write_text(json.dumps(wire.to_dict(_written_down(self._layout))))
        except StateUnfit as err:
            trouble = str(err)
        except OSError as err:
            trouble = f"shared memory at {self._folder}: {err.strerror}"
        if self._peers.maxima([int(bool(trouble))])[0]:
            self._layout = None
            self.given.use(None)
            raise SaveFailed(self._first(trouble))

    @property
    def _layout_path(self) -> Path:
        return self._folder / f"layout-{self._peers.rank:05d}-{self._whose.generation}-{self._layouts}"

    def _first(self, trouble: str) -> str:
        """The trouble of the first rank that has one. A collective."""
        told = self._peers.gather({"trouble": trouble[:2000]} if trouble else {})
        return next(f"rank {rank}: {each['trouble']}" for rank, each in enumerate(told) if each)

    # -- a copy becomes whole

    def _before_step(self, *_: Any) -> None:
        """An optimizer is about to change what is being copied."""
        if self._under is not None and self._under.torn is None:
            began = self._clock()
            self._under.copying.hold_optimizer()
            self._under.torn = self._under.copying.changed()
            self.blocked_s += self._clock() - began

    def settle(self) -> None:
        """Hand a copy that is whole to the saver, and hear what it told. Waits for the copy if it has to."""
        under, self._under = self._under, None
        if under is not None:
            try:
                if trouble := self._trouble_of(under):
                    self._give_up(under, trouble)
                else:
                    self._submit(under)
            except SaverGone as err:
                under.copy.busy = False
                self.given.fail(under.target.step, str(err))
                self.given.not_carried(under.target.step, str(err))
        self.given.listen(0.0)

    def _trouble_of(self, under: _Under) -> str:
        """What is wrong with the copy, which is over when this returns; empty: it is whole."""
        try:
            under.copying.finish()
        except RuntimeError as err:
            return str(err)
        if under.copying.changed() if under.torn is None else under.torn:
            self._overlap = False  # something changes it behind the optimizer's back: from now on all is copied at once
            return "state was changed outside of an optimizer step while it was copied"
        return ""

    def _submit(self, under: _Under) -> None:
        target, rank = under.target, self._peers.rank
        values = dict(under.state.values)
        alike = {part: sha256(text.encode()) for part, text in values.items() if part not in under.state.own}
        assert self._layout is not None, "a copy was made with it"
        record = RankRecord(
            job=self._whose.job,
            generation=self._whose.generation,
            step=target.step,
            rank=rank,
            hash=digests.default(),
            bytes=0,
            entries=(),
            values=values,
        )
        save = Save(
            step=target.step,
            copy=str(under.copy.path),
            layout=str(self._layout_path),
            record=record,
            world_size=self._peers.world_size,
            alike=alike,
            persist=_persist_of(target, self._whose, self._peers),
            mirror=under.mirror,
        )
        self.given.hand(save, self._abandon_of(target, reason=""))

    def _give_up(self, under: _Under, reason: str) -> None:
        """This rank's copy is not whole: the committer is told at once, and does not wait."""
        under.copy.busy = False
        self.given.not_carried(under.target.step, reason)
        if (abandon := self._abandon_of(under.target, reason=reason)) is not None:
            self.given.link.abandon(abandon)
        self.given.fail(under.target.step, f"rank {self._peers.rank}: {reason}")

    def _abandon_of(self, target: Target, *, reason: str) -> Abandon | None:
        """What is said of a checkpoint that this rank's part of will not come; None: it is only a copy in memory."""
        if target.manifest is None:
            return None
        rank, folder = self._peers.rank, str(target.manifest.name)
        return Abandon(root=self._whose.root, folder=folder, rank=rank, step=target.step, reason=reason)

    # -- a save ends

    def ended(self) -> list[Ended]:
        """Saves that are over since the last call, as far as this rank hears of them."""
        return self.given.ended()

    def finish(self, *, within_s: float) -> None:
        """Wait until the saver reads no copy, and the ends of all saves are known here; or until the time is over."""
        self.settle()
        until = self._clock() + within_s
        while (self.given.pending or self._reading()) and (left_s := until - self._clock()) > 0:
            self.given.listen(left_s)

    def close(self, *, within_s: float) -> None:
        """Let the saver end when it has done what it has."""
        for hook in self._hooks:
            hook.remove()
        self.given.link.close(within_s=within_s)
        if self._own_folder is not None:
            self._own_folder.close(remove=False)  # the saver does, when it has done what it has
            self._own_folder = None


def _persist_of(target: Target, whose: Whose, peers: Peers) -> Persist | None:
    if target.manifest is None:
        return None
    return Persist(
        root=whose.root,
        folder=str(target.manifest.name),
        draft=target.manifest if peers.rank == 0 else None,
        world_size=peers.world_size,
        watches=whose.watches,
        deadline_s=whose.deadline_s,
        parent=target.parent,
        keep=whose.keep,
        restored_step=whose.restored_step,
    )


def _written_down(layout: Layout) -> CopyLayout:
    places = tuple(
        PiecePlace(
            name=piece.name,
            dtype=piece.dtype,
            shape=piece.shape,
            offsets=piece.offsets,
            sizes=piece.sizes,
            start=start,
            bytes=piece.bytes,
        )
        for piece, start in zip(layout.pieces, layout.starts, strict=True)
    )
    return CopyLayout(pieces=places, written=layout.written, bytes=layout.bytes)
