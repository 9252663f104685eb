"""Files of the what-if: what is shipped is sound, and what is wrong in a file is said in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from evertrain.chaos.fleet.files import BadFile, shipped
from evertrain.chaos.fleet.policy import CorePolicy, load_policy
from evertrain.chaos.fleet.trace import load_trace
from support.fleet import published

NAMES = ("dlrover-like", "evertrain", "evertrain-elastic", "requeue", "torchft-like", "torchrun")


def test_every_policy_that_comes_along_can_be_played_and_says_where_its_numbers_come_from() -> None:
    assert tuple(shipped("policies")) == NAMES
    for name in NAMES:
        policy = load_policy(name, published())
        assert policy.name == name
        assert policy.sources


def changed(path: Path, **changes: object) -> Path:
    """A copy of the published trace with other values."""
    data = yaml.safe_load(shipped("traces")["published"].read_text())
    path.write_text(yaml.safe_dump(data | changes))
    return path


def test_a_trace_of_ones_own_is_played_at_the_severity_that_is_named(tmp_path: Path) -> None:
    path = changed(tmp_path / "ours.yaml", severity={"bad_quarter": 2.5})
    assert load_trace(str(path))[1] == 1.0
    assert load_trace(f"{path}:bad_quarter")[1] == 2.5
    with pytest.raises(BadFile, match="has no severity good_quarter: it has bad_quarter"):
        load_trace(f"{path}:good_quarter")


def test_a_trace_may_give_only_its_own_counts(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("causes: {xid_79: {rate: 2.0, detect_s: 10, shows: explicit, needs_node: 1.0}}\n")
    with pytest.raises(BadFile, match="epochs or heat name causes that do not exist: faulty_gpu"):
        load_trace(str(path))
    path.write_text(path.read_text() + "epochs_assumed: []\nheat_assumed: null\n")
    trace, severity = load_trace(str(path))
    assert list(trace.causes) == ["xid_79"]
    assert severity == 1.0
    assert trace.repair_assumed == published().repair_assumed


def test_a_file_that_holds_no_mapping_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    for text, says in (("- a list", "holds no mapping"), ("a: [", "is not YAML")):
        path.write_text(text)
        with pytest.raises(BadFile, match=says):
            load_trace(str(path))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epochs_assumed": [{"name": "e", "causes": ["ghosts"], "factor": 2, "mean_days": 1, "per_quarter": 1}]},
         "causes that do not exist: ghosts"),
        ({"repair_assumed": [{"kind": "rma", "share": 0.4, "low_s": 1, "high_s": 2}]}, "add up to 0.4, not to 1"),
        ({"recovery_s": {"requeue": {8: 1}}}, "needs two sizes at least"),
        ({"no_fault_found_assumed": 1.5}, "no_fault_found_assumed: Input should be less than or equal to 1"),
        ({"surprise": 1}, "surprise: Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_trace_is_said_with_its_place(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    with pytest.raises(BadFile, match=says):
        load_trace(str(changed(tmp_path / "ours.yaml", **changes)))


def test_a_name_that_is_neither_a_trace_nor_a_file_is_answered_with_those_there_are() -> None:
    with pytest.raises(BadFile, match="no trace named llama4: take one of byterobust, llama3"):
        load_trace("llama4")
    with pytest.raises(BadFile, match="no policy named hope: take one of dlrover-like, evertrain"):
        load_policy("hope", published())


def test_a_policy_may_set_the_coordinators_own_limits_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = shipped("policies")["evertrain"].read_text()
    path.write_text(text + "limits: {agent_return_s: 20, checkpoints_max: 64}\n")
    policy = load_policy(str(path), published())
    assert isinstance(policy, CorePolicy)
    assert policy.coordinator_limits().agent_return_s == 20
    assert policy.coordinator_limits().checkpoints_max == 64
    path.write_text(text + "limits: {patience_s: 20}\n")
    with pytest.raises(BadFile, match="the coordinator has no limit patience_s"):
        load_policy(str(path), published())


def test_recovery_costs_are_interpolated_and_grow_beyond_the_table() -> None:
    trace = published()
    assert trace.recovery("requeue", 16384) == 768
    assert 545 < trace.recovery("requeue", 6000) < 635
    assert trace.recovery("requeue", 8) == 454  # smaller than the table: its smallest
    policy = load_policy("evertrain", trace)
    assert policy.restart_s(trace, 2048) == 65
    assert policy.restart_s(trace, 16384) > 65 + 150  # 131,072 GPUs: NCCL's start is what grows
