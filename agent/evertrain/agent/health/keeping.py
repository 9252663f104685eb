"""What of health outlives the agent, and what operators tell it by files: a hold, clearings. Not for decisions.

In the agent's state directory::

    health/kept.json      conditions, the start of the host they are of, how far its log was read
    health/hold.json      a Hold: GPU probes rest until it ends
    health/clear/*.json   clearings that the agent has not taken in yet; it removes them
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from evertrain.agent.health.conditions import UNSEEN, Raised, State
from evertrain.agent.health.facts import Cleared
from evertrain.agent.health.rules import Rules
from evertrain.agent.journal import write_durably
from evertrain.contract.wire import from_dict, to_dict

FILE_BYTES_MAX: Final = 1 << 20
CLEARINGS_MAX: Final = 64
HOLD_S_MAX: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Somebody works on the GPUs: they are not asked anything, because asking can make a reset fail."""

    until_s: float
    """Seconds since the epoch; a hold that nobody ends, ends itself."""
    reason: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """All that a restarted agent has to know."""

    boot_id: str = ""
    sequence: int = -1
    """Of the newest record of the kernel log that was taken in."""
    raised: tuple[Raised, ...] = ()
    cleared: tuple[Cleared, ...] = ()
    released_s: float = -1.0
    ports: Mapping[str, float] = field(default_factory=dict)
    """Ports that worked once, and how fast."""

    def essence(self) -> tuple[object, ...]:
        """What must not be forgotten; the rest changes with each reading."""
        keys = tuple(each.condition.key for each in self.raised)
        return (self.boot_id, keys, self.cleared, self.released_s, self.ports)


class Folder:
    """The folder of files above."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "health"

    # -- what the agent keeps -----------------------------------------------------------

    def load(self, rules: Rules) -> tuple[Kept, str]:
        """What was kept, without what the rules do not know any more; and a warning when it could not be read."""
        file = self.path / "kept.json"
        try:
            kept = from_dict(Kept, json.loads(_read(file)))
        except FileNotFoundError:
            return Kept(), ""
        except (OSError, ValueError) as err:
            return Kept(), f"{file} cannot be read ({err}): the kernel log is read again from the start of the host"
        known = tuple(each for each in kept.raised if each.condition.signal in rules.signals)
        return replace(kept, raised=known), ""

    def save(self, kept: Kept) -> None:
        """Keep it. Raises OSError."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        write_durably(self.path / "kept.json", json.dumps(to_dict(kept), separators=(",", ":")).encode())

    # -- what operators say -------------------------------------------------------------

    def hold(self, now_s: float) -> Hold | None:
        """The hold that is on at ``now_s``. A file that cannot be understood holds nothing."""
        try:
            found = from_dict(Hold, json.loads(_read(self.path / "hold.json")))
        except (OSError, ValueError):
            return None
        return found if now_s < found.until_s <= now_s + HOLD_S_MAX else None

    def set_hold(self, hold: Hold) -> None:
        """Begin or change a hold. Raises OSError."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        write_durably(self.path / "hold.json", json.dumps(to_dict(hold)).encode())

    def release(self) -> bool:
        """End the hold; whether there was one. Raises OSError."""
        try:
            (self.path / "hold.json").unlink()
        except FileNotFoundError:
            return False
        return True

    def clear(self, at_s: float, kind: str, entity: str) -> None:
        """Have the agent clear conditions. Raises OSError."""
        folder = self.path / "clear"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps(to_dict(Cleared(at=at_s, kind=kind, entity=entity)))
        write_durably(folder / f"{secrets.token_hex(8)}.json", text.encode())

    def take_clearings(self) -> list[Cleared]:
        """Clearings since the last look, removed; those that cannot be understood are only removed."""
        found = []
        for name in _some(self.path / "clear"):
            file = self.path / "clear" / name
            with suppress(OSError, ValueError):
                found.append(from_dict(Cleared, json.loads(_read(file))))
            file.unlink(missing_ok=True)
        return sorted(found, key=lambda each: each.at)


def kept_of(state: State, sequence: int, ports: Mapping[str, float]) -> Kept:
    """What of ``state`` is kept."""
    return Kept(
        boot_id=state.boot_id,
        sequence=sequence,
        raised=tuple(state.raised[key] for key in sorted(state.raised) if key[0] != UNSEEN),
        cleared=state.cleared,
        released_s=state.released_s,
        ports=ports,
    )


def state_of(kept: Kept) -> State:
    """The state that a restarted agent begins with."""
    return State(
        boot_id=kept.boot_id,
        raised={each.condition.key: each for each in kept.raised},
        cleared=kept.cleared,
        released_s=kept.released_s,
    )


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX)


def _some(folder: Path) -> Iterable[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".json"))[:CLEARINGS_MAX]
    except OSError:
        return ()
