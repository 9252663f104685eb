"""Recognises texts that have the form of a secret, so that they can be left out. Not a scanner."""

from __future__ import annotations

import re
from typing import Final

SECRET: Final = re.compile(
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
_NAMED: Final = re.compile(
    r"""(?i)((?:password|passwd|passphrase|secret|token|credentials?|api_?key|access_?key|authorization)["']?\s*[=:]\s*)"""
    r"""(?:bearer\s+)?("[^"]{4,}"|'[^']{4,}'|[^\s"',;]{4,})"""
)
"""``name=value`` where the name says that the value is secret."""
INSTEAD: Final = "[redacted]"


def redacted(text: str) -> str:
    """``text`` without what looks like a secret."""
    return SECRET.sub(INSTEAD, _NAMED.sub(rf"\1{INSTEAD}", text))
