"""What a reading of the ports means: states against what they were, counters against limits. No I/O.

A port that was never seen to work is not missed, unless the inventory asks for
it: adapters have ports that nobody uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from evertrain.agent.health.facts import Fact, Finding, Read
from evertrain.agent.health.rules import Rules, Thresholds
from evertrain.contract.health import Entity, EntityKind

SOURCE: Final = "network"
ACTIVE: Final = 4
SAMPLES_MAX: Final = 512
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One counter's limit."""

    counter: str
    signal: str
    limit: float
    """Not to be passed within ``window_s``."""
    window_s: float
    what: str


def _rules(limits: Thresholds) -> tuple[_Rule, ...]:
    window_s = limits.port_window_s
    counts = (
        ("link_downed", "ib-link-downed", limits.port_link_downed, "times the link went down"),
        ("link_error_recovery", "ib-link-recovery", limits.port_link_recovery, "recoveries of the link"),
        ("excessive_buffer_overrun_errors", "ib-buffer-overrun", limits.port_buffer_overrun, "buffer overruns"),
        ("local_link_integrity_errors", "ib-local-integrity", limits.port_local_integrity, "link integrity errors"),
        ("rnr_nak_retry_err", "ib-rnr", limits.port_rnr_retry, "receivers that were never ready"),
        ("carrier_changes", "ib-port-flap", limits.port_carrier_changes, "changes of the carrier"),
    )
    rates = (
        ("symbol_error", "ib-symbol-degraded", limits.port_symbol_errors_per_s, "symbol errors"),
        ("port_rcv_errors", "ib-rcv-errors", limits.port_rcv_errors_per_s, "receive errors"),
        ("port_xmit_discards", "port-xmit-discards", limits.port_discards_per_s, "discarded packets"),
        (
            "local_ack_timeout_err",
            "ib-ack-timeout",
            limits.port_ack_timeout_per_s,
            "acknowledgements that did not come",
        ),
        ("roce_slow_restart", "roce-slow-restart", limits.port_slow_restart_per_s, "slow restarts"),
    )
    found = [_Rule(counter=c, signal=s, limit=n, window_s=window_s, what=w) for c, s, n, w in counts]
    found += [_Rule(counter=c, signal=s, limit=n * window_s, window_s=window_s, what=w) for c, s, n, w in rates]
    hour = _Rule(
        counter="symbol_error",
        signal="ib-symbol-fatal",
        limit=limits.port_symbol_errors,
        window_s=HOUR_S,
        what="symbol errors",
    )
    return (*found, hour)


@dataclass(slots=True)
class _Seen:
    """Of one port, between readings."""

    gbps_max: float = 0.0
    worked: bool = False
    totals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By counter: its last value, and how much it has grown since the first reading, restarts left out."""
    samples: deque[tuple[float, dict[str, float]]] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))

    def grown(self, counter: str, since: float) -> float:
        """By how much a counter has grown since an instant."""
        now = self.totals.get(counter, (0.0, 0.0))[1]
        for at, totals in self.samples:
            if at >= since:
                return now - totals.get(counter, now)
        return 0.0

    def count(self, counters: Mapping[str, float], at: float) -> None:
        """Take in the values of one reading. A smaller one than before: its driver began anew."""
        for name, value in counters.items():
            last, total = self.totals.get(name, (value, 0.0))
            self.totals[name] = (value, total + (value - last if value >= last else value))
        self.samples.append((at, {name: total for name, (_, total) in self.totals.items()}))


class NetworkJudge:
    """One for the node."""

    def __init__(self, rules: Rules, *, known: Mapping[str, float]) -> None:
        """``known`` are the ports that worked when the agent ran last, as :meth:`known` told them."""
        self._inventory = rules.inventory
        self._rules = _rules(rules.thresholds)
        worked = {name: _Seen(gbps_max=gbps, worked=True) for name, gbps in known.items()}
        # An adapter's port has a slash in its name, an Ethernet interface cannot.
        self._ports = {name: seen for name, seen in worked.items() if "/" in name}
        self._nets = {name: seen for name, seen in worked.items() if "/" not in name}

    def known(self) -> dict[str, float]:
        """Ports that worked once, and how fast."""
        return {name: seen.gbps_max for name, seen in {**self._ports, **self._nets}.items() if seen.worked}

    def forget(self, name: str) -> None:
        """It is not to be missed any more."""
        self._ports.pop(name, None)
        self._nets.pop(name, None)

    def facts(self, reading: Mapping[str, Any], at: float) -> list[Fact]:
        """What the reading says."""
        findings = [*self._ports_of(reading, at), *self._nets_of(reading, at), *self._devices(reading)]
        return [Read(at=at, source=SOURCE, findings=tuple(findings))]

    def _ports_of(self, reading: Mapping[str, Any], at: float) -> Iterator[Finding]:
        found = {str(each["name"]): each for each in reading.get("ports", ())}
        for name, port in found.items():
            seen, entity = self._ports.setdefault(name, _Seen()), _port(name)
            seen.count(port.get("counters") or {}, at)
            yield from self._counted(entity, seen, at)
            if port.get("state") == ACTIVE:
                seen.worked = True
                yield from self._rate(entity, seen, float(port.get("gbps") or 0.0))
            elif seen.worked:
                yield Finding(signal="ib-port-down", entity=entity, text=f"it was active, and is {port.get('says')}")
        for name in sorted(name for name in set(self._ports) - set(found) if self._ports[name].worked):
            text = "its adapter was there, and is gone"
            yield Finding(signal="ib-device-missing", entity=_port(name), text=text)
        up = sum(1 for each in found.values() if each.get("state") == ACTIVE)
        if up < self._inventory.ports:
            yield Finding(
                signal="ib-ports-missing", text=f"{up} ports are up, the inventory has {self._inventory.ports}"
            )

    def _counted(self, entity: Entity, seen: _Seen, at: float) -> Iterator[Finding]:
        for rule in self._rules:
            grown = seen.grown(rule.counter, at - rule.window_s)
            if grown > rule.limit:
                text = f"{grown:g} {rule.what} within {rule.window_s:.0f} s, more than {rule.limit:g}"
                yield Finding(signal=rule.signal, entity=entity, text=text)

    def _rate(self, entity: Entity, seen: _Seen, gbps: float) -> Iterator[Finding]:
        wanted = self._inventory.port_gbps or seen.gbps_max
        seen.gbps_max = max(seen.gbps_max, gbps)
        if 0 < gbps < wanted:
            yield Finding(signal="ib-rate-degraded", entity=entity, text=f"it runs at {gbps:g} of {wanted:g} Gb/s")

    def _nets_of(self, reading: Mapping[str, Any], at: float) -> Iterator[Finding]:
        for each in reading.get("nets", ()):
            name = str(each["name"])
            seen, entity = self._nets.setdefault(name, _Seen()), _port(name)
            changes = each.get("carrier_changes")
            seen.count({} if changes is None else {"carrier_changes": changes}, at)
            yield from self._counted(entity, seen, at)
            if each.get("up") == "up":
                seen.worked = True
            elif seen.worked and each.get("up") in ("down", "lowerlayerdown"):
                yield Finding(signal="net-down", entity=entity, text=f"it was up, and is {each['up']}")

    def _devices(self, reading: Mapping[str, Any]) -> Iterator[Finding]:
        for name in (reading.get("devices") or {}).get("missing", ()):
            text = f"/dev/infiniband/{name} is missing: programs cannot reach the adapter"
            yield Finding(signal="ib-chardev-missing", entity=_port(str(name)), text=text)


def _port(name: str) -> Entity:
    return Entity(kind=EntityKind.PORT, name=name)
