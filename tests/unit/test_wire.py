"""Typed messages over a local socket: whatever is sent arrives, whatever is malformed is refused by name."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evertrain.contract import beacon, jobspec, launch, wire
from support.messages import instances

MESSAGES = (*beacon.WORKER_REPORTS, beacon.Wish, launch.GangOrder, launch.LauncherStatus, jobspec.JobSpec)


def framed(body: bytes) -> bytes:
    """The frame of ``body``."""
    return struct.pack(">I", len(body)) + body


def refused(value: object) -> str:
    """What the decoder says of a frame that holds ``value``."""
    with pytest.raises(wire.Malformed) as caught:
        list(wire.Decoder(beacon.Progress, launch.GangOrder).feed(framed(json.dumps(value).encode())))
    return str(caught.value)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_any_message_survives_the_wire(kind: type) -> None:
    @settings(max_examples=50)
    @given(message=instances(kind))
    def survives(message: Any) -> None:
        assert list(wire.Decoder(kind).feed(wire.encode(message))) == [message]

    survives()


@given(
    messages=st.lists(instances(beacon.Progress) | instances(beacon.Hello), max_size=6),
    cuts=st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=20),
)
def test_a_stream_cut_anywhere_gives_the_same_messages(messages: list[Any], cuts: list[int]) -> None:
    stream, decoder, received, position = b"".join(map(wire.encode, messages)), wire.Decoder(*MESSAGES), [], 0
    while position < len(stream):
        length = cuts[position % len(cuts)]
        received += list(decoder.feed(stream[position : position + length]))
        position += length
    assert received == messages


@given(data=st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused_but_never_crash_the_reader(data: bytes) -> None:
    with contextlib.suppress(wire.WireError):
        list(wire.Decoder(*MESSAGES).feed(data))


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x) | st.dictionaries(st.sampled_from(["type", "step", "place", "term", "desired", "loss"]), x)
        ),
    )
)
def test_any_json_is_decoded_or_refused_as_malformed(value: object) -> None:
    for kind in MESSAGES:
        with contextlib.suppress(wire.Malformed):
            wire.from_dict(kind, value)


def test_an_unknown_field_is_named() -> None:
    assert "unknown field 'stepp'" in refused({"type": "Progress", "stepp": 1})


def test_a_missing_field_is_named() -> None:
    assert "step" in refused({"type": "Progress"})


@pytest.mark.parametrize("step", ["1", 1.5, True, None, [1]])
def test_a_mistyped_field_is_named_with_both_types(step: object) -> None:
    assert "Progress.step: expected int" in refused({"type": "Progress", "step": step})


def test_an_integer_is_taken_for_a_float_but_not_a_truth_value() -> None:
    assert wire.from_dict(beacon.Progress, {"step": 1, "loss": 2}) == beacon.Progress(step=1, loss=2.0)
    assert "expected float, got bool" in refused({"type": "Progress", "step": 1, "loss": True})


def test_a_loss_that_is_not_a_number_arrives_as_such() -> None:
    (progress,) = wire.Decoder(beacon.Progress).feed(wire.encode(beacon.Progress(step=1, loss=math.nan)))
    assert math.isnan(progress.loss)


@pytest.mark.parametrize("field", ["step", "tokens", "loss"])
def test_an_integer_that_no_64_bits_hold_is_refused(field: str) -> None:
    assert f"Progress.{field}: an integer of" in refused({"type": "Progress", "step": 1, field: 10**400})


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(wire.Malformed, match=r"reason: .* is not valid Unicode"):
        wire.from_dict(beacon.CheckpointFailed, {"step": 1, "reason": "/tmp/\udcff"})


def test_a_bottomless_nesting_is_refused() -> None:
    with pytest.raises(wire.Malformed, match="not JSON"):
        list(wire.Decoder(beacon.Progress).feed(framed(b"[" * 100_000)))


def test_a_nested_error_is_named_by_its_path() -> None:
    order = wire.to_dict(launch.GangOrder(term=1, generation=1, desired=launch.Desired.RUN, place=_place()))
    order["place"]["master_port"] = "x"
    assert "GangOrder.place.master_port: expected int, got str" in refused({"type": "GangOrder", **order})


def test_an_unknown_enum_value_is_answered_with_the_known_ones() -> None:
    order = {"type": "GangOrder", "term": 1, "generation": 1, "desired": "walk"}
    assert "'walk' is not one of ['prepare', 'run', 'stop']" in refused(order)


@pytest.mark.parametrize("value", [[], "x", 1, None, {}, {"type": 1}, {"type": "Nothing"}])
def test_what_is_no_known_message_is_refused(value: object) -> None:
    assert refused(value)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"not json"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(wire.Malformed, match="not JSON"):
        list(wire.Decoder(beacon.Progress).feed(framed(body)))


def test_a_frame_announced_above_the_limit_is_refused_before_its_bytes_arrive() -> None:
    with pytest.raises(wire.FrameTooLarge, match="at most"):
        list(wire.Decoder(beacon.Progress).feed(struct.pack(">I", wire.FRAME_BYTES_MAX + 1)))


def test_a_message_above_the_limit_is_not_sent() -> None:
    with pytest.raises(wire.FrameTooLarge, match="CheckpointFailed"):
        wire.encode(beacon.CheckpointFailed(step=1, reason="x" * wire.FRAME_BYTES_MAX))


def test_no_two_message_kinds_share_a_name() -> None:
    assert len({kind.__name__ for kind in MESSAGES}) == len(MESSAGES)


def _place() -> launch.GangPlace:
    return launch.GangPlace(
        group_rank=0, group_world_size=1, rank_first=0, world_size=1, master_addr="127.0.0.1", master_port=1
    )
