"""Recognises what looks like a secret, so that it can be warned about and left out of output. Not a scanner."""

from __future__ import annotations

import re
from typing import Final

_NAME_WORDS: Final = frozenset({"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "CREDENTIAL", "CREDENTIALS"})
_NAME_ENDS: Final = re.compile(r"(?:^|_)(?:API|ACCESS|PRIVATE|SECRET|AUTH|ENCRYPTION|SIGNING)_?KEY$")
_NAMES_OF_PLACES: Final = ("_FILE", "_PATH", "_DIR", "_URL", "_NAME", "_ID")
"""A name that ends so says where a secret is, not what it is."""
_COUNT_DIGITS_MAX: Final = 8
_VALUES: Final = re.compile(
    r"""
      \b(?:sk|pk|rk)-[A-Za-z0-9_-]{20,}        # model vendors, payment
    | \bgh[pousr]_[A-Za-z0-9]{30,}             # GitHub
    | \bglpat-[A-Za-z0-9_-]{20,}               # GitLab
    | \bhf_[A-Za-z0-9]{30,}                    # Hugging Face
    | \bxox[abprs]-[A-Za-z0-9-]{10,}           # Slack
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b            # AWS
    | \bAIza[0-9A-Za-z_-]{35}                  # Google
    | \beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.  # JSON web token
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----
    | \b[a-z][a-z0-9+.-]*://[^/\s:@]+:[^/\s@]+@  # URL with a password
    """,
    re.VERBOSE,
)


def looks_secret(name: str, value: str) -> bool:
    """Whether the environment variable ``name`` with ``value`` seems to hold a secret."""
    if not value:
        return False
    upper = name.upper()
    if _VALUES.search(value):
        return True
    if upper.endswith(_NAMES_OF_PLACES) or value[0] in "/<" or (value.isdecimal() and len(value) < _COUNT_DIGITS_MAX):
        return False  # a place, "<pad>" as PAD_TOKEN, 4096 as MAX_TOKEN
    return bool(_NAME_WORDS & set(upper.split("_")) or _NAME_ENDS.search(upper))


def value_looks_secret(value: str) -> bool:
    """Whether ``value`` has a form that secrets have, whatever it is called."""
    return _VALUES.search(value) is not None
