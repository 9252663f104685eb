"""What ends a reproducible run, or never lets it begin.

Errors::

    NotReproducible (RuntimeError)
     +-- Unsupported      the model or the world holds something the mode has no exact form for
     +-- Unequal          the same microbatches gave other gradients when they were computed again
     +-- SettingsChanged  a checkpoint was made with another number of microbatches, seed or set of parameters
     +-- OutsideStep      a wrapped model had a backward pass that belongs to no step
     +-- Unfinished       a microbatch went by without its backward pass
"""

from __future__ import annotations


class NotReproducible(RuntimeError):
    """Base of what stands against bitwise equal weights."""


class Unsupported(NotReproducible):
    """Something the mode has no exact form for; the text names it and what to use instead."""


class Unequal(NotReproducible):
    """Computing a step again gave other gradients: something in the model or its data is not deterministic."""


class SettingsChanged(NotReproducible):
    """The checkpoint belongs to another experiment."""


class OutsideStep(NotReproducible):
    """Its gradients would be summed by nobody, or in floating point."""


class Unfinished(NotReproducible):
    """The loop body did not call ``backward`` on its microbatch."""
