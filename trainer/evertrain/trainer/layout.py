"""Who copies and who writes which piece of the gang's state: agreed once, known to all. Pure but for one collective.

Several ranks hold the same piece when they are replicas. On each node one of
them copies it into shared memory, so that the node has all that its ranks
need; in the whole gang one of them writes it to storage. Both are chosen so
that all carry about the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evertrain.checkpoint.manifest import padded
from evertrain.contract import wire
from evertrain.trainer.peers import Peers
from evertrain.trainer.pieces import Piece
from evertrain.trainer.plain import StateUnfit


class NotAlike(StateUnfit):
    """Ranks hold something else where they should hold the same; the text names the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """This rank's share."""

    pieces: tuple[Piece, ...]
    """What it copies, in the order of its file."""
    starts: tuple[int, ...]
    """Where each begins there."""
    written: tuple[int, ...]
    """Which of them it writes to storage, as indexes."""
    bytes: int
    """Size of its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Indexes into a rank's own pieces."""

    copied: tuple[int, ...]
    written: tuple[int, ...]


def agree(peers: Peers, pieces: Sequence[Piece], *, node: int) -> Layout:
    """Find this rank's share of ``pieces``. A collective. Raises :class:`NotAlike` on all ranks alike."""
    mine = [_brief(piece) for piece in pieces]
    digest = hashlib.sha256(json.dumps(mine).encode()).hexdigest()
    told = peers.gather({"node": node, "pieces": digest})
    # Replicas hold all the same; only where ranks differ the whole lists travel.
    if all(each["pieces"] == digest for each in told):
        everyone: list[Sequence[Piece]] = [pieces] * len(told)
    else:
        everyone = [
            [wire.from_dict(Piece, piece) for piece in each["pieces"]]
            for each in peers.gather({"pieces": [wire.to_dict(piece) for piece in pieces]})
        ]
    share = divide(everyone, [int(each["node"]) for each in told])[peers.rank]
    copied = tuple(pieces[index] for index in share.copied)
    starts, end = [], 0
    for piece in copied:
        starts.append(end)
        end += padded(piece.bytes)
    place = {index: at for at, index in enumerate(share.copied)}
    written = tuple(place[index] for index in share.written)
    return Layout(pieces=copied, starts=tuple(starts), written=written, bytes=end)


def divide(everyone: Sequence[Sequence[Piece]], nodes: Sequence[int]) -> list[Share]:
    """Each rank's share, given all ranks' pieces and nodes. Raises :class:`NotAlike`."""
    holders: dict[tuple[str, tuple[int, ...]], list[tuple[int, int]]] = {}
    for rank, pieces in enumerate(everyone):
        for index, piece in enumerate(pieces):
            holders.setdefault(piece.key, []).append((rank, index))
    copies: list[list[int]] = [[] for _ in everyone]
    writes: list[list[int]] = [[] for _ in everyone]
    copied_bytes, written_bytes = [0] * len(everyone), [0] * len(everyone)
    # The large ones first: the small ones then even out what is left.
    for key, found in sorted(holders.items(), key=lambda item: (-_size(everyone, item[1]), item[0])):
        size = _require_alike(everyone, key[0], found).bytes
        writer = min(found, key=lambda place: (written_bytes[place[0]], place[0]))
        written_bytes[writer[0]] += size
        writes[writer[0]].append(writer[1])
        for node in dict.fromkeys(nodes[rank] for rank, _ in found):
            here = [place for place in found if nodes[place[0]] == node]
            copier = writer if writer in here else min(here, key=lambda place: (copied_bytes[place[0]], place[0]))
            copied_bytes[copier[0]] += size
            copies[copier[0]].append(copier[1])
    return [
        Share(copied=tuple(sorted(copied)), written=tuple(sorted(written)))
        for copied, written in zip(copies, writes, strict=True)
    ]


def _size(everyone: Sequence[Sequence[Piece]], found: Sequence[tuple[int, int]]) -> int:
    rank, index = found[0]
    return everyone[rank][index].bytes


def _require_alike(everyone: Sequence[Sequence[Piece]], name: str, found: Sequence[tuple[int, int]]) -> Piece:
    first = everyone[found[0][0]][found[0][1]]
    for rank, index in found[1:]:
        if everyone[rank][index] != first:
            other = everyone[rank][index]
            raise NotAlike(
                f"{name} is {first.dtype}{list(first.sizes)} on rank {found[0][0]} and "
                f"{other.dtype}{list(other.sizes)} on rank {rank}: what differs between ranks has to be declared "
                "with per_rank"
            )
    return first


def _brief(piece: Piece) -> list[Any]:
    return [piece.name, piece.dtype, piece.shape, piece.offsets, piece.sizes]
