"""Silences the coordinators' logs in a simulation: what they say is in its history."""

from __future__ import annotations

import logging

import structlog


def hush() -> None:
    """From now on nothing of this process is logged below critical."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
