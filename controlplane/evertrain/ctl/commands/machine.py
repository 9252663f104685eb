"""version and doctor."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from evertrain.ctl.failures import CtlError, NoCoordinator, Refused
from evertrain.ctl.options import with_settings
from evertrain.ctl.screen import Screen
from evertrain.ctl.settings import Settings

if TYPE_CHECKING:
    from evertrain.api.v1 import operator_pb2
    from evertrain.ctl.doctor import Finding


@with_settings
def version(settings: Settings, screen: Screen) -> None:
    """Show versions, who leads, and how the store is.

    \b
    Examples:
      ctl version
      ctl version -o json | jq -r .coordinator.leader_address
    """
    from evertrain.contract.version import version as ours
    from evertrain.ctl import session
    from evertrain.ctl.plain import plain

    async def work() -> None:
        reply: operator_pb2.GetVersionResponse | None = None
        failure: CtlError | None = None
        try:
            async with session.operator(settings, screen) as operator:
                reply = await operator.version()
        except CtlError as err:
            failure = err
        if screen.machine:
            screen.json({"ctl": ours(), "coordinator": plain(reply) if reply is not None else None})
        else:
            screen.fields([("ctl", ours()), *([] if reply is None else _coordinator(reply))])
        if failure is not None:
            raise failure

    session.run(work())


def _coordinator(reply: operator_pb2.GetVersionResponse) -> list[tuple[str, str]]:
    from evertrain.ctl.words import clean

    leads = f"it leads, term {reply.term}" if reply.leads else clean(reply.leader_address) or "nobody at the moment"
    return [
        ("coordinator", clean(reply.version)),
        ("leader", leads),
        ("cluster", clean(reply.cluster_id)),
        ("store", f"{clean(reply.store)}: {clean(reply.store_state) or 'known to the leader only'}"),
    ]


@with_settings
def doctor(
    settings: Settings,
    screen: Screen,
    *,
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="The Python that jobs run with. Default: this one.")
    ] = sys.executable,
    etcd: Annotated[
        str, typer.Option("--etcd", metavar="URL", help="An etcd server to ask as well, e.g. https://etcd1:2379.")
    ] = "",
) -> None:
    """Check this machine and the way to the coordinator.

    Each line says ok, warn or fail, and what to do about what is wrong. Exit 0 when nothing fails; warnings are none.

    \b
    Examples:
      ctl doctor
      ctl doctor --python /srv/venvs/train/bin/python
      ctl doctor --etcd https://etcd1:2379 --tls-ca ca.pem
    """
    from evertrain.contract.wire import to_dict
    from evertrain.ctl import session
    from evertrain.ctl.doctor import Verdict

    findings = []
    for finding in _findings(settings, python, etcd):
        findings.append(finding)
        _show(screen, finding)

    async def ask() -> None:
        findings.append(await _coordinator_finding(settings, screen))

    session.run(ask())
    _show(screen, findings[-1])
    if screen.machine:
        screen.json({"findings": [to_dict(finding) for finding in findings]})
    failed = [finding.check for finding in findings if finding.verdict is Verdict.FAIL]
    if failed:
        raise Refused(f"{', '.join(failed)} will not do", hint="what to do stands below each")


def _findings(settings: Settings, python: str, etcd: str) -> Iterator[Finding]:
    from evertrain.ctl import doctor

    yield doctor.python()
    yield doctor.torch(python)
    yield from doctor.folders(settings.state_dir)
    yield doctor.clock(time.time())
    yield doctor.shared_memory()
    yield doctor.limits()
    yield doctor.ports()
    files = (("--tls-ca", settings.tls_ca), ("--tls-cert", settings.tls_cert))
    yield from doctor.certificates(tuple((name, path) for name, path in files if path is not None), time.time())
    if etcd:
        yield doctor.etcd(etcd, ca=settings.tls_ca, cert=settings.tls_cert, key=settings.tls_key)


async def _coordinator_finding(settings: Settings, screen: Screen) -> Finding:
    from evertrain.contract.version import version as ours
    from evertrain.ctl import session, where
    from evertrain.ctl.doctor import Finding, Verdict

    def found(verdict: Verdict, text: str, remedy: str = "") -> Finding:
        return Finding(check="coordinator", verdict=verdict, text=text, remedy=remedy)

    try:
        addresses = where.addresses(settings)
        async with session.operator(settings, screen) as operator:
            reply = await operator.version()
    except NoCoordinator as err:
        verdict = Verdict.FAIL if settings.coordinator else Verdict.WARN
        return found(verdict, err.message, err.hint)
    except CtlError as err:
        return found(Verdict.FAIL, err.message, err.hint)
    text = f"{', '.join(addresses)}: version {reply.version}, store {reply.store_state or 'not told'}"
    if reply.store_state not in ("ok", ""):
        return found(Verdict.FAIL, text, "training goes on, but nothing new can be decided until the store is back")
    if not reply.leads and not reply.leader_address:
        return found(Verdict.FAIL, f"{text}; nobody leads", "wait for an election, look at its log")
    if reply.version != ours():
        return found(Verdict.WARN, f"{text}; this is {ours()}", "upgrade the older one")
    return found(Verdict.OK, text)


def _show(screen: Screen, finding: Finding) -> None:
    if screen.machine:
        return
    screen.hanging(f"{finding.verdict:<4}  {finding.check:<11}  ", finding.text)
    if finding.remedy:
        screen.hanging(" " * 19, f"-> {finding.remedy}")
