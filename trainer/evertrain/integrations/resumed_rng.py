"""The random numbers of a resumed run, put back once its first batch is there. Not for saving them (trainer/rng.py).

A data loader draws from the global generators when a pass over it begins.
The pass in whose middle a resumed run begins is one that the undisturbed run
began long ago, so what it draws must not count.
"""

from __future__ import annotations

from evertrain.trainer import rng


class ResumedRng:
    """Generators as a restore left them, until :meth:`put_back` is called the first time."""

    def __init__(self) -> None:
        self._captured: rng.Captured | None = None

    def keep(self) -> None:
        """Remember how the generators stand now."""
        self._captured = rng.capture()

    def put_back(self) -> None:
        """Continue from there. Only the first call after :meth:`keep` does anything."""
        if self._captured is not None:
            rng.put_back(self._captured)
            self._captured = None
