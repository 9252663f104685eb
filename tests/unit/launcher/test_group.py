"""How a group ended, from the exit codes of its workers."""

from __future__ import annotations

import pytest

from evertrain.contract.launch import GroupState
from evertrain.launcher.group import outcome


@pytest.mark.parametrize(
    ("codes", "state"),
    [
        ([0, 0], GroupState.SUCCEEDED),
        ([83, 83], GroupState.YIELDED),
        ([0, 83], GroupState.YIELDED),
        ([0, 1], GroupState.FAILED),
        ([83, -9], GroupState.FAILED),
        ([84, 84], GroupState.FAILED),
    ],
)
def test_the_outcome_of_a_group_that_nobody_stopped(codes: list[int], state: GroupState) -> None:
    assert outcome(codes) is state
