"""Recognises texts that have the form of a secret, so that they can be left out. Not a scanner.

Not a guarantee either: a secret without a telling form or name is not known as one.
"""

from __future__ import annotations

import re
from typing import Final

_FORMS: Final = r"""
      \b(?:sk|pk|rk)-[A-Za-z0-9_-]{20,}        # model vendors, payment
    | \bgh[pousr]_[A-Za-z0-9]{20,}             # GitHub
    | \bglpat-[A-Za-z0-9_-]{20,}               # GitLab
    | \bhf_[A-Za-z0-9]{16,}                    # Hugging Face
    | \bxox[abprs]-[A-Za-z0-9-]{10,}           # Slack
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b            # AWS
    | \bAIza[0-9A-Za-z_-]{35}                  # Google
    | \beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*  # JSON web token
"""
_PRIVATE_KEY: Final = r"-----BEGIN\ [A-Z ]*PRIVATE\ KEY-----"
SECRET: Final = re.compile(
    rf"{_FORMS} | {_PRIVATE_KEY} | \b[a-z][a-z0-9+.-]*://[^/\s:@]+:[^/\s@]+@  # URL with a password", re.VERBOSE
)
INSTEAD: Final = "[redacted]"
_FORM: Final = re.compile(rf"{_FORMS} | {_PRIVATE_KEY}.*", re.VERBOSE)
_NAMED: Final = re.compile(
    r"""(?i)((?:authorization|password|passwd|passphrase|secret|token|credentials?|api[_-]?key|access[_-]?key)["']?\s*"""
    r"""[=:]\s*)(?:basic\s+)?(?!bearer\b|\[redacted])("[^"]{4,}"|'[^']{4,}'|[^\s"',;&]{4,})"""
)
"""``name=value`` where the name says that the value is secret."""
_BEARER: Final = re.compile(r"(?i)\bbearer\s+(?!\[redacted])[^\s\"']+")
_URL: Final = re.compile(r"(://[^\s/:@]*):[^\s@/]+@")


def redacted(text: str) -> str:
    """``text`` without what looks like a secret."""
    text = _BEARER.sub(f"Bearer {INSTEAD}", _FORM.sub(INSTEAD, text))
    return _URL.sub(rf"\1:{INSTEAD}@", _NAMED.sub(rf"\1{INSTEAD}", text))
