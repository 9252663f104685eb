"""Conditions: raised by what is seen, never by silence, and each cleared by its rule."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from evertrain.agent.health import conditions
from evertrain.agent.health.conditions import RAISED_MAX, State, step, told
from evertrain.agent.health.facts import (
    HOST,
    Booted,
    Cleared,
    Fact,
    Finding,
    Happened,
    Lost,
    Read,
    Released,
    Tick,
)
from evertrain.agent.health.rules_file import load
from evertrain.contract.health import (
    CONDITIONS_MAX,
    ClearedBy,
    Condition,
    Entity,
    EntityKind,
    HealthStatus,
    Severity,
    overall,
)

RULES = load()
DAY_S = 86_400.0
GPU = Entity(kind=EntityKind.GPU, name="0000:3b:00")
OTHER = Entity(kind=EntityKind.GPU, name="0000:86:00")


def after(*facts: Fact, state: State | None = None) -> State:
    """The state that facts lead to."""
    state = state or State()
    for fact in facts:
        state = step(state, fact, RULES)
    return state


def kinds(state: State) -> list[str]:
    """What is told, the gravest first."""
    return [each.kind for each in told(state)[0]]


def xid(number: int, at: float = 0.0, *, count: int = 1, entity: Entity = GPU) -> Happened:
    return Happened(at=at, signal=f"xid-{number}", entity=entity, text=f"Xid {number}", count=count)


def gpus(at: float, *signals: str, well: bool = False) -> Read:
    """A reading of the GPUs with these findings."""
    found = tuple(Finding(signal=each, entity=GPU, text=each) for each in signals)
    return Read(at=at, source="gpu", findings=found, well=(GPU.name,) if well else ())


# Raised


def test_a_record_raises_at_once_and_its_repeats_are_counted() -> None:
    state = after(xid(79, 10.0), xid(79, 11.0, count=500), xid(79, 900.0))
    (condition,), _ = told(state)
    assert (condition.kind, condition.count, condition.since_s, condition.last_s) == ("gpu-off-bus", 502, 10.0, 900.0)
    assert overall([condition]) is HealthStatus.UNHEALTHY


def test_what_may_be_noise_is_raised_when_it_is_seen_twice_in_a_row() -> None:
    once = after(gpus(0.0, "inforom-corrupt"))
    assert kinds(once) == []
    assert kinds(after(gpus(15.0), gpus(30.0, "inforom-corrupt"), state=once)) == []
    (condition,), _ = told(after(gpus(15.0, "inforom-corrupt"), state=once))
    assert (condition.kind, condition.since_s) == ("inforom-corrupt", 0.0)


def test_a_sign_that_may_be_a_consequence_counts_only_when_it_comes_again() -> None:
    once = after(xid(74, 0.0), xid(74, 60.0))
    assert [each.severity for each in told(once)[0]] == [Severity.WATCH], "one burst"
    again = after(xid(74, 600.0), state=once)
    assert [each.severity for each in told(again)[0]] == [Severity.CRITICAL]


def test_a_sign_that_needs_repeats_is_raised_by_the_second_burst_within_a_day() -> None:
    assert kinds(after(xid(31, 0.0), xid(31, 100.0))) == []
    assert kinds(after(xid(31, 0.0), xid(31, 1000.0))) == ["xid-31"]
    assert kinds(after(xid(31, 0.0), Tick(at=DAY_S + 1), xid(31, DAY_S + 2))) == []
    assert kinds(after(xid(31, 0.0), xid(31, 1000.0, entity=OTHER))) == [], "each GPU has its own"


def test_signs_of_one_kind_are_one_condition_with_the_newest_words() -> None:
    tail = Happened(at=1.0, signal="gpu-off-bus-tail", entity=GPU, text="fallen off the bus")
    (condition,), _ = told(after(xid(79), tail))
    assert (condition.count, condition.evidence) == (2, "fallen off the bus")


def test_a_secret_in_the_words_of_a_source_is_left_out() -> None:
    check = Entity(kind=EntityKind.CHECK, name="quota")
    finding = Finding(signal="check-critical", entity=check, text="login failed: PASSWORD=hunter22 for me" + "x" * 999)
    (condition,), _ = told(after(Read(at=0.0, source="check:quota", findings=(finding,))))
    assert "hunter22" not in condition.evidence
    assert condition.evidence.startswith("login failed: PASSWORD=[redacted] for me")
    assert len(condition.evidence) == 400


# Sight


def test_a_source_that_cannot_be_read_is_unknown_and_nothing_it_would_tell_changes() -> None:
    sick = after(gpus(0.0, "row-remap-failure"))
    blind = after(Lost(at=15.0, source="gpu", reason="no answer within 45 s"), state=sick)
    assert {(each.kind, each.status) for each in told(blind)[0]} == {
        ("row-remap-failure", HealthStatus.UNHEALTHY),
        ("unseen", HealthStatus.UNKNOWN),
    }
    assert kinds(after(gpus(30.0, "row-remap-failure"), state=blind)) == ["row-remap-failure"]
    assert overall(told(after(Lost(at=0.0, source="gpu", reason="x")))[0]) is HealthStatus.UNKNOWN


def test_one_gpu_that_does_not_answer_is_unknown_and_keeps_its_conditions() -> None:
    sick = after(gpus(0.0, "row-remap-failure"))
    blind = Read(at=15.0, source="gpu", blind=(Finding(signal="", entity=GPU, text="time-out"),))
    state = after(blind, blind, blind, state=sick)
    assert kinds(state) == ["row-remap-failure", "unseen"]
    assert kinds(after(gpus(60.0), gpus(75.0), state=state)) == []


def test_a_probe_that_cannot_be_killed_is_told_apart_and_ends_with_the_next_readings() -> None:
    stuck = after(Lost(at=0.0, source="gpu", reason="hangs in the kernel", signal="nvml-hang"))
    assert kinds(stuck) == ["nvml-hang", "unseen"]
    assert kinds(after(gpus(60.0), gpus(75.0), state=stuck)) == []


def test_no_gpus_where_there_should_be_some_are_a_fault_and_not_health() -> None:
    missing = Finding(signal="gpu-count-mismatch", text="the driver shows 0 GPUs, the inventory has 8")
    read = Read(at=0.0, source="gpu", findings=(missing,))
    assert overall(told(after(read, read))[0]) is HealthStatus.UNHEALTHY


# Cleared


def test_two_good_looks_clear_a_level_and_one_does_not() -> None:
    sick = after(gpus(0.0, "row-remap-failure"))
    assert kinds(after(gpus(15.0), state=sick)) == ["row-remap-failure"]
    assert kinds(after(gpus(15.0), gpus(30.0, "row-remap-failure"), gpus(45.0), state=sick)) == ["row-remap-failure"]
    assert kinds(after(gpus(15.0), gpus(30.0), state=sick)) == []


def test_what_comes_and_goes_stays_until_it_has_been_quiet() -> None:
    state = State()
    for at in (0.0, 100.0, 200.0):
        state = after(gpus(at, "row-remap-failure"), gpus(at + 15), gpus(at + 30), state=state)
    (condition,), _ = told(state)
    assert "came and went" in condition.evidence
    assert kinds(after(gpus(3000.0), state=state)) == ["row-remap-failure"]
    assert kinds(after(gpus(200.0 + 3600.0), state=state)) == []


def test_a_cheap_look_does_not_clear_what_needs_a_reset() -> None:
    sick = after(xid(48, 0.0))
    assert kinds(after(*(gpus(15.0 * at, well=True) for at in range(1, 20)), state=sick)) == ["xid-48"]


def test_a_reset_under_a_hold_clears_what_the_driver_then_finds_well() -> None:
    sick = after(xid(48, 0.0), xid(79, 0.0), xid(48, 0.0, entity=OTHER))
    released = after(Released(at=100.0), state=sick)
    assert kinds(after(gpus(110.0, well=False), state=released)).count("xid-48") == 2, "the driver does not say so"
    state = after(gpus(110.0, well=True), state=released)
    assert {(each.kind, each.entity) for each in told(state)[0]} == {("gpu-off-bus", GPU), ("xid-48", OTHER)}
    again = after(xid(48, 120.0), gpus(130.0, well=True), state=state)
    assert ("xid-48", GPU) in {(each.kind, each.entity) for each in told(again)[0]}, "it came after the reset"


def test_a_restart_of_the_host_clears_what_it_mends_and_not_what_needs_a_validation() -> None:
    sick = after(Booted(at=0.0, boot_id="a"), xid(79), xid(48), xid(54), gpus(1.0, "row-remap-failure"))
    assert kinds(after(Booted(at=9.0, boot_id="a"), state=sick)) == kinds(sick), "the agent alone was restarted"
    assert kinds(after(Booted(at=9.0, boot_id="b", expected=True), state=sick)) == ["xid-54"]
    assert kinds(after(Booted(at=9.0, boot_id="b"), state=sick)) == ["xid-54", "unexpected-reboot"]
    assert kinds(after(Booted(at=9.0, boot_id=""), state=sick)) == kinds(sick), "not to know it is no restart"


def test_a_quiet_time_clears_and_a_repeat_prolongs_it() -> None:
    state = after(xid(43, 0.0), xid(43, 3000.0))
    assert kinds(after(Tick(at=6599.0), state=state)) == ["xid-43"]
    assert kinds(after(Tick(at=6600.0), state=state)) == []


def test_good_news_in_the_log_clears_what_it_answers() -> None:
    server = Entity(kind=EntityKind.MOUNT, name="10.0.0.9")
    bad = Happened(at=0.0, signal="nfs-not-responding", entity=server, text="not responding")
    good = Happened(at=9.0, signal="nfs-ok", entity=server, text="OK")
    other = Happened(at=9.0, signal="nfs-ok", entity=Entity(kind=EntityKind.MOUNT, name="10.0.0.8"), text="OK")
    assert kinds(after(bad, other)) == ["nfs-not-responding"]
    assert kinds(after(bad, good)) == []


def test_an_operator_clears_what_is_written_down_but_not_what_is_still_seen() -> None:
    state = after(xid(54, 0.0), xid(79, 0.0), gpus(0.0, "row-remap-failure"), Cleared(at=5.0, kind="xid-54"))
    assert kinds(state) == ["gpu-off-bus", "row-remap-failure"]
    assert kinds(after(xid(54, 4.0), state=state)) == kinds(state), "read again after a restart of the agent"
    assert "xid-54" in kinds(after(xid(54, 6.0), state=state)), "it happened anew"
    state = after(Cleared(at=7.0), state=state)
    assert kinds(state) == []
    assert kinds(after(gpus(15.0, "row-remap-failure"), state=state)) == ["row-remap-failure"]


def test_a_folder_that_nobody_needs_any_more_is_forgotten() -> None:
    mount = Entity(kind=EntityKind.MOUNT, name="/ckpt")
    finding = Finding(signal="storage-read-only", entity=mount, text="read-only")
    state = after(
        Read(at=0.0, source="storage:/ckpt", findings=(finding,)), Lost(at=1.0, source="storage:/x", reason="r")
    )
    assert kinds(conditions.forget(state, "storage:/ckpt")) == ["unseen"]
    assert kinds(conditions.forget(conditions.forget(state, "storage:/ckpt"), "storage:/x")) == []


def test_a_node_that_is_very_sick_tells_the_gravest_and_how_many_more() -> None:
    many = [
        Happened(at=float(at), signal="blk-io", entity=Entity(kind=EntityKind.DISK, name=f"sd{at}"), text="I/O error")
        for at in range(RAISED_MAX + 50)
    ]
    state = after(*many, xid(79, 999.0))
    found, more = told(state)
    assert (len(found), more) == (CONDITIONS_MAX, RAISED_MAX - CONDITIONS_MAX)
    assert found[0].kind == "gpu-off-bus"


# Whatever happens

IN_LOG = ("xid-", "sxid-", "recovery-")
WRITTEN = tuple(sorted(name for name, each in RULES.signals.items() if each.pattern or name.startswith(IN_LOG)))
"""Signs in records."""
READ = tuple(sorted(set(RULES.signals) - set(WRITTEN) - {"unexpected-reboot", "kernel-log-overrun"}))
"""Signs in readings."""
ENTITIES = (HOST, GPU, OTHER)
SOURCES = ("gpu", "network", "kernel")


def facts(instants: st.SearchStrategy[float]) -> st.SearchStrategy[Fact]:
    """Facts of all kinds but restarts."""
    text = st.text(max_size=5)
    finding = st.builds(Finding, signal=st.sampled_from(READ), entity=st.sampled_from(ENTITIES), text=text)
    source = st.sampled_from(SOURCES)
    return st.one_of(
        st.builds(
            Happened,
            at=instants,
            signal=st.sampled_from(WRITTEN),
            entity=st.sampled_from(ENTITIES),
            text=text,
            count=st.integers(1, 9),
        ),
        st.builds(
            Read,
            at=instants,
            source=source,
            findings=st.lists(finding, max_size=3).map(tuple),
            well=st.sampled_from(((), (GPU.name,))),
        ),
        st.builds(Lost, at=instants, source=source, reason=text),
        st.builds(Released, at=instants),
        st.builds(Tick, at=instants),
        st.builds(Cleared, at=instants, kind=st.sampled_from(("", "xid-79")), entity=st.sampled_from(("", GPU.name))),
    )


HISTORIES = st.lists(facts(st.integers(0, 20).map(lambda at: at * 600.0)), max_size=40).map(
    lambda each: sorted(each, key=lambda fact: fact.at)
)


@given(losses=st.lists(st.sampled_from(SOURCES), max_size=20), ticks=st.lists(st.floats(0, 1e6), max_size=20))
def test_silence_never_makes_a_node_unhealthy(losses: list[str], ticks: list[float]) -> None:
    state = after(*(Lost(at=1.0, source=each, reason="gone") for each in losses), *(Tick(at=at) for at in ticks))
    assert overall(told(state)[0]) is not HealthStatus.UNHEALTHY


@settings(max_examples=80)
@given(history=HISTORIES)
def test_every_condition_can_be_cleared_by_its_rule(history: list[Fact]) -> None:
    state = after(Booted(at=0.0, boot_id="a"), *history)
    for raised in tuple(state.raised.values()):
        condition = raised.condition
        cleared = _cleared_by_its_rule(state, condition, raised.source)
        assert condition.key not in cleared.raised, condition


def _cleared_by_its_rule(state: State, condition: Condition, source: str) -> State:
    late = condition.last_s + 2 * DAY_S
    match condition.cleared_by:
        case ClearedBy.QUIET:
            return after(Tick(at=late), state=state)
        case ClearedBy.HEALTHY:
            return _looks(after(Tick(at=late), state=state), late, source.partition(":")[0])
        case ClearedBy.RESET | ClearedBy.REBOOT:
            return after(Booted(at=late, boot_id="b", expected=True), state=state)
        case ClearedBy.VALIDATION:
            return after(Cleared(at=late, kind=condition.kind, entity=condition.entity.name), state=state)


def _looks(state: State, at: float, source: str) -> State:
    return after(*(Read(at=at + 15 * each, source=source) for each in range(3)), state=state)


@settings(max_examples=40)
@given(history=HISTORIES, at=st.just(50_000.0), data=st.data())
def test_what_happens_in_one_instant_may_come_in_any_order(history: list[Fact], at: float, data: st.DataObject) -> None:
    state = after(*history)
    simple = facts(st.just(at)).filter(lambda fact: not isinstance(fact, Read | Lost))
    several = data.draw(st.lists(simple, max_size=3))
    # A source is read by one process: it does not tell two things at once.
    several += data.draw(st.lists(facts(st.just(at)).filter(lambda fact: isinstance(fact, Read)), max_size=1))
    ends = {_essence(after(*order, state=state)) for order in itertools.permutations(several)}
    assert len(ends) == 1


def _essence(state: State) -> tuple[object, ...]:
    return tuple(sorted((each.key, each.status, each.severity, each.count, each.since_s) for each in told(state)[0]))


@settings(max_examples=60)
@given(history=HISTORIES)
def test_what_is_kept_and_told_is_bounded_whatever_happens(history: list[Fact]) -> None:
    found, more = told(after(*history))
    assert len(found) + more <= RAISED_MAX
    assert len({each.key for each in found}) == len(found)
    assert all(len(each.evidence) <= 400 and each.since_s <= each.last_s for each in found)


def test_what_is_written_and_what_is_read_are_never_one_condition() -> None:
    kinds_of = ({RULES.signals[name].kind for name in names} for names in (WRITTEN, READ))
    assert not set.intersection(*kinds_of)
