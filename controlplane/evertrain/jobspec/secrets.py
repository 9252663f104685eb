"""Recognises what looks like a secret, so that it can be warned about and left out of output. Not a scanner."""

from __future__ import annotations

import re
from typing import Final

from evertrain.contract.secrets import SECRET

_NAME_WORDS: Final = frozenset({"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "CREDENTIAL", "CREDENTIALS"})
_NAME_ENDS: Final = re.compile(r"(?:^|_)(?:API|ACCESS|PRIVATE|SECRET|AUTH|ENCRYPTION|SIGNING)_?KEY$")
_NAMES_OF_PLACES: Final = ("_FILE", "_PATH", "_DIR", "_URL", "_NAME", "_ID")
"""A name that ends so says where a secret is, not what it is."""
_COUNT_DIGITS_MAX: Final = 8


def looks_secret(name: str, value: str) -> bool:
    """Whether the environment variable ``name`` with ``value`` seems to hold a secret."""
    if not value:
        return False
    upper = name.upper()
    if SECRET.search(value):
        return True
    if upper.endswith(_NAMES_OF_PLACES) or value[0] in "/<" or (value.isdecimal() and len(value) < _COUNT_DIGITS_MAX):
        return False  # a place, "<pad>" as PAD_TOKEN, 4096 as MAX_TOKEN
    return bool(_NAME_WORDS & set(upper.split("_")) or _NAME_ENDS.search(upper))


def value_looks_secret(value: str) -> bool:
    """Whether ``value`` has a form that secrets have, whatever it is called."""
    return SECRET.search(value) is not None
