"""Which coordinator a command talks to: the one that was named, else the local cluster's."""

from __future__ import annotations

from evertrain.api.transport import Tls, TransportError, split
from evertrain.ctl.failures import InvalidInput, NoCoordinator
from evertrain.ctl.local.state import Found, find
from evertrain.ctl.settings import COORDINATOR_ENV, Settings


def addresses(settings: Settings) -> tuple[str, ...]:
    """Where to ask. Raises :class:`InvalidInput` or :class:`NoCoordinator`."""
    if settings.coordinator:
        return _given(settings.coordinator)
    match find(settings.state_dir):
        case None:
            raise NoCoordinator(
                "no coordinator is known",
                hint=f"start a local cluster with 'ctl up', or name one with --coordinator or {COORDINATOR_ENV}",
            )
        case Found(coordinator_alive=True, cluster=cluster) if cluster.coordinator:
            return (cluster.coordinator,)
        case found:
            log = found.log_of("coordinator")
            raise NoCoordinator(
                f"the coordinator of the local cluster in {settings.state_dir} is not running",
                hint=f"its log is {log}; 'ctl down' clears what is left, then 'ctl up'",
            )


def tls(settings: Settings) -> Tls | None:
    """What to connect with; None for plain text. Raises :class:`InvalidInput`."""
    if settings.tls_ca is None and settings.tls_cert is None and settings.tls_key is None:
        return None
    try:
        return Tls(ca=settings.tls_ca, cert=settings.tls_cert, key=settings.tls_key)
    except TransportError as err:
        raise InvalidInput(str(err)) from err


def _given(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for address in found:
        try:
            if not address.startswith("unix:"):
                split(address)
        except TransportError as err:
            raise InvalidInput(f"--coordinator (or {COORDINATOR_ENV}): {err}") from err
    if not found:
        raise InvalidInput(f"--coordinator (or {COORDINATOR_ENV}) {text!r} names nobody")
    return found
