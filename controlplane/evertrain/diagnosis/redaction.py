"""Secrets in quoted text are covered. Not a guarantee: a secret without a telling form or name is not known as one."""

from __future__ import annotations

import re
from typing import Final

COVER: Final = "[redacted]"
_FORMS: Final = re.compile(
    r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|xox[abps]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----.*"
)
_NAMED: Final = re.compile(
    r"(?i)((?:authorization|proxy-authorization|[\w-]*(?:token|secret|passwd|password|api[_-]?key|access[_-]?key))"
    r"[\"']?\s*[=:]\s*[\"']?(?:bearer\s+|basic\s+)?)(?!\[redacted\])[^\s\"',;&]{6,}"
)
_URL: Final = re.compile(r"(\w+://)[^/\s:@]+:[^/\s@]+@")


def redacted(text: str) -> str:
    """``text`` with what looks like a secret covered."""
    return _URL.sub(rf"\1{COVER}@", _NAMED.sub(rf"\1{COVER}", _FORMS.sub(COVER, text)))
