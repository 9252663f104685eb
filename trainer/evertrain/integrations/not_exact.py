"""What is raised for a framework that is set up so that a resumed run would not be the same run."""

from __future__ import annotations

from collections.abc import Mapping


class NotExact(ValueError):
    """A setting under which a resumed run would not be the same run; the text says what to set instead."""


def require_exact(framework: str, settings: Mapping[str, object]) -> None:
    """Raise :class:`NotExact` for the first of ``settings``, by their description, that is on."""
    for what, is_on in settings.items():
        if is_on:
            raise NotExact(f"{framework} cannot be resumed exactly with {what}")
