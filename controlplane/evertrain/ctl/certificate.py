"""When a PEM certificate is valid. Reads just enough of its DER; verifies nothing."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18


class NoCertificate(ValueError):
    """The text is no certificate; it says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """From when to when a certificate may be used, seconds since the epoch."""

    begins_s: float
    ends_s: float


def validity(pem: str) -> Validity:
    """Of the first certificate in ``pem``. Raises :class:`NoCertificate`."""
    start, end = pem.find(ssl.PEM_HEADER), pem.find(ssl.PEM_FOOTER)
    if start < 0 or end < start:
        raise NoCertificate("it holds no PEM certificate")
    try:
        der = ssl.PEM_cert_to_DER_cert(pem[start : end + len(ssl.PEM_FOOTER)] + "\n")
        (certificate,) = _parts(der)
        to_be_signed = next(_parts(certificate[1]))
        fields = [part for part in _parts(to_be_signed[1]) if part[0] != _VERSION]
        # serial number, signature algorithm, issuer, validity, ...
        times = list(_parts(fields[3][1]))
        return Validity(begins_s=_time(*times[0]), ends_s=_time(*times[1]))
    except (ValueError, IndexError, StopIteration) as err:
        raise NoCertificate("its certificate cannot be read") from err


def _parts(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element of a DER sequence. Raises IndexError or ValueError."""
    at = 0
    while at < len(der):
        tag, size = der[at], der[at + 1]
        at += 2
        if size & 0x80:  # the length takes that many bytes itself
            count = size & 0x7F
            size = int.from_bytes(der[at : at + count])
            at += count
        if at + size > len(der):
            raise ValueError("cut off")
        yield tag, der[at : at + size]
        at += size


def _time(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits for the year: 1950 to 2049
        text = ("20" if int(text[:2]) < 50 else "19") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
