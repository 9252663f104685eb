"""All chance of a simulation comes from one seed, in streams that don't disturb each other."""

from __future__ import annotations

from random import Random


class Chance:
    """Hands out one stream per name. More draws on one stream leave every other stream as it was."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, Random] = {}

    def of(self, name: str) -> Random:
        """The stream called ``name``; the same object for the same name."""
        stream = self._streams.get(name)
        if stream is None:
            # A text seeds through SHA-512, so it doesn't depend on PYTHONHASHSEED.
            stream = self._streams[name] = Random(f"{self.seed}/{name}")
        return stream
