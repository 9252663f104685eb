"""Dataclasses and the protobuf messages that mirror them say the same, whatever they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings

from evertrain.api import mirror
from evertrain.api.v1 import agent_pb2, health_pb2, job_pb2, operator_pb2
from evertrain.contract import health, jobspec, launch, task
from support.messages import instances

PAIRS: tuple[tuple[type, type[Message]], ...] = (
    (jobspec.JobSpec, job_pb2.JobSpec),
    (launch.LauncherStatus, job_pb2.LauncherStatus),
    (launch.GangPlace, job_pb2.GangPlace),
    (task.TaskOrder, agent_pb2.TaskOrder),
    (task.TaskResult, agent_pb2.TaskResult),
    (health.Condition, health_pb2.Condition),
)
"""Pairs that are copied by the mirror; what is nested in them is covered with them."""


@pytest.mark.parametrize(("kind", "message_type"), PAIRS)
def test_both_sides_of_a_pair_have_the_same_fields(kind: type, message_type: type[Message]) -> None:
    assert mirror.differences(kind, message_type.DESCRIPTOR) == []


@pytest.mark.parametrize(("kind", "message_type"), PAIRS)
def test_any_value_survives_the_message_and_its_bytes(kind: type, message_type: type[Message]) -> None:
    @settings(max_examples=50)
    @given(value=instances(kind, bits=32))
    def survives(value: Any) -> None:
        data = mirror.to_message(value, message_type).SerializeToString()
        assert mirror.from_message(kind, message_type.FromString(data)) == value

    survives()


def test_an_absent_optional_message_is_none_and_an_empty_one_is_not() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class JobOrder:
        job: str
        place: launch.GangPlace | None

    assert mirror.from_message(JobOrder, agent_pb2.JobOrder(job="a")) == JobOrder(job="a", place=None)
    empty = mirror.from_message(JobOrder, agent_pb2.JobOrder(place=job_pb2.GangPlace()))
    assert empty.place is not None
    assert mirror.to_message(empty, agent_pb2.JobOrder).HasField("place")


def test_an_optional_number_of_zero_is_not_the_same_as_none() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Seen:
        tokens: int | None

    assert mirror.from_message(Seen, mirror.to_message(Seen(tokens=0), job_pb2.LauncherStatus)) == Seen(tokens=0)
    assert mirror.from_message(Seen, mirror.to_message(Seen(tokens=None), job_pb2.LauncherStatus)) == Seen(tokens=None)


@pytest.mark.parametrize("number", [0, 99])
def test_an_unspecified_or_unknown_enum_value_is_refused_by_field(number: int) -> None:
    message = job_pb2.LauncherStatus(state=number, group=job_pb2.GROUP_STATE_NONE)  # type: ignore[arg-type]
    with pytest.raises(mirror.MirrorError, match=rf"LauncherStatus\.state: {number} is no value of LauncherState"):
        mirror.from_message(launch.LauncherStatus, message)


class Two(StrEnum):
    """Less than the message's enum has."""

    PREPARE = "prepare"
    WALK = "walk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """Every way to miss evertrain.api.v1.JobOrder."""

    job: int
    generation: tuple[int, ...]
    desired: Two
    spec: Mapping[str, str]
    place: str
    save_and_yield: bool | None
    stray: str


def test_every_difference_of_a_pair_is_told() -> None:
    where = "Wrong and evertrain.api.v1.JobOrder: "
    assert [line.removeprefix(where) for line in mirror.differences(Wrong, agent_pb2.JobOrder.DESCRIPTOR)] == [
        "stray is only in one of them",
        "desired: DESIRED_RUN is only in one of them",
        "desired: DESIRED_STOP is only in one of them",
        "desired: DESIRED_WALK is only in one of them",
        "generation is repeated in one of them only",
        "job is int in the dataclass and of another type in the message",
        "place is str in the dataclass and of another type in the message",
        "save_and_yield must be optional in the message",
        "spec is a map in one of them only",
    ]


def test_every_enum_of_the_api_has_an_unspecified_zero() -> None:
    for module in (agent_pb2, job_pb2, operator_pb2):
        for enum in module.DESCRIPTOR.enum_types_by_name.values():
            assert enum.values_by_number[0].name.endswith("_UNSPECIFIED"), enum.full_name
