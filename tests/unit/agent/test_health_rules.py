"""The rules of health: a fleet says single keys otherwise, and a bad file is refused whole, with its line."""

from __future__ import annotations

import importlib.resources
import tomllib
from pathlib import Path

import pytest

from evertrain.agent.health.rules import Check, Mount
from evertrain.agent.health.rules_file import RulesError, load
from evertrain.contract.health import CausalRole, NodeAction, Severity


def override(folder: Path, text: str) -> Path:
    """A fleet's file."""
    file = folder / "health.toml"
    file.write_text(f"version = 1\n{text}")
    return file


def test_a_fleet_overrides_single_keys_and_adds_its_own(tmp_path: Path) -> None:
    text = """
[inventory]
gpus = 8
[thresholds]
gpu_temperature_c = 85
[probes.gpu]
period_s = 30.0
[xid]
109 = "watch"
74 = { severity = "degraded" }
[signals.ib-rnr]
severity = "degraded"
[signals.our-card]
class = "rma"
pattern = 'ourcard (?P<port>\\S+): burnt'
[[mount]]
path = "/scratch"
write = false
[[check]]
name = "fans"
command = ["/opt/fans.sh", "-w"]
"""
    rules, shipped = load(override(tmp_path, text)), load()
    assert rules.inventory.gpus == 8
    assert (rules.thresholds.gpu_temperature_c, rules.thresholds.confirm) == (85.0, shipped.thresholds.confirm)
    assert (rules.probes["gpu"].period_s, rules.probes["gpu"].deadline_s) == (30.0, shipped.probes["gpu"].deadline_s)
    assert rules.signals["xid-109"].severity is Severity.WATCH
    assert shipped.signals["xid-109"].severity is Severity.CRITICAL
    xid_74 = rules.signals["xid-74"]
    assert (xid_74.severity, xid_74.action, xid_74.role) == (Severity.DEGRADED, NodeAction.RESET_GPU, CausalRole.EITHER)
    assert rules.signals["ib-rnr"].severity is Severity.DEGRADED
    assert rules.signals["our-card"].action is NodeAction.RMA
    assert rules.mounts == (Mount(path="/scratch", write=False),)
    assert rules.checks == (Check(name="fans", command=("/opt/fans.sh", "-w")),)


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        ("[threshold]\nx = 1", 2, "no such table"),
        ("[thresholds]\nconfirm = 1\ngpu_temprature_c = 85", 4, "no such key"),
        ("[thresholds]\n\ngpu_temperature_c = 'hot'", 4, "expected a number"),
        ("[thresholds]\ngpu_temperature_c = nan", 3, "expected a number"),
        ("[inventory]\ngpus = -1", 3, "expected a whole number"),
        ("[probes.gpu]\nperiod_s = 0.1", 3, "at least 1"),
        ("[probes.gpus]\nperiod_s = 9.0", 2, "no such source"),
        ("[xid]\n79 = 'ignore'", 3, "no class 'ignore'"),
        ("[xid]\nseventy = 'watch'", 3, "expected a number"),
        ("[signals.a]\nclass = 'rma'\npattern = '('", 2, "pattern: missing"),
        ("[signals.a]\nclass = 'rma'\npattern = '(?P<fan>x)'", 2, "names no kind of entity"),
        ("[signals.a]\nclass = 'rma'\nrole = 'cascade'", 2, "never blames the node"),
        ("[signals.a]\nclass = 'level'\npattern = 'x'", 2, "cannot be looked at again"),
        ("[signals.a]\nclass = 'note'\nseverity = 'bad'", 4, "none of watch, degraded, critical"),
        ("[signals.a]\naction = 'rma'", 2, "severity is missing"),
        ("[signals.xfs-shutdown]\nhealed_by = 'blk-io'", 3, "names no signal with heals"),
        ("[[check]]\nname = 'a'\ncommand = ['/a']\n[[check]]\nname = 'b'\ncommand = ['b']", 7, "absolute path"),
        ("[[check]]\nname = 'a b'\ncommand = ['/a']", 3, "lower-case letters"),
        ("[[check]]\nname = 'a'\ncommand = ['/a']\nperiod_s = 5.0", 2, "deadline_s above 0 and at most period_s"),
        ("[[mount]]\npath = 'ckpt'", 3, "must begin with /"),
        ("[[mount]\n", 2, "not TOML"),
    ],
)
def test_a_bad_file_is_refused_with_the_line_that_is_wrong(tmp_path: Path, text: str, where: int, why: str) -> None:
    file = override(tmp_path, text)
    with pytest.raises(RulesError) as refused:
        load(file)
    assert str(refused.value).startswith(f"{file}:{where}: "), refused.value
    assert why in str(refused.value)


def test_a_file_of_another_version_or_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "old.toml"
    file.write_text("version = 2\n")
    with pytest.raises(RulesError, match=r"old.toml:1: version: version = 1 is needed"):
        load(file)
    with pytest.raises(RulesError, match="cannot be read"):
        load(tmp_path / "none.toml")


def test_the_agent_and_the_diagnosis_take_the_same_xids_for_faults_of_the_node() -> None:
    table = importlib.resources.files("evertrain.diagnosis") / "data" / "signals.toml"
    theirs = {
        name: entry.get("node_action") == "drain"
        for name, entry in tomllib.loads(table.read_text())["signals"].items()
        if name.startswith("xid-") and name != "xid-154"  # the action that it names is taken
    }
    rules = load()
    ours = {name: rules.signals[name].severity is Severity.CRITICAL for name in theirs}
    assert ours == theirs
