"""Sources in processes of their own: their answers, deadlines and ends; and what is kept on the disk."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from evertrain.agent.health import conditions
from evertrain.agent.health.children import Child, ProbeLost, run_script
from evertrain.agent.health.facts import Booted, Cleared, Happened
from evertrain.agent.health.keeping import Folder, Hold, Kept, kept_of, state_of
from evertrain.agent.health.probe_gpu import Nvml
from evertrain.agent.health.probe_storage import read
from evertrain.agent.health.rules_file import load
from support.health_root import Root

RULES = load()
ANSWER = "import sys, json, os\nfor line in sys.stdin: print(json.dumps({'reading': {'pid': os.getpid()}}), flush=True)"
HANG = """
import subprocess, sys
child = subprocess.Popen(["sleep", "60"])
with open(sys.argv[1], "w") as note:
    print(child.pid, file=note)
sys.stdin.read()
"""


def child(program: str, argument: str = "x") -> Child:
    """A probe process that runs ``program``."""
    return Child(argument, command=(sys.executable, "-c", program))


async def test_a_process_is_kept_between_readings_and_a_new_one_started_after_its_end() -> None:
    probe = child(ANSWER)
    first, second = await probe.ask({}, 20.0), await probe.ask({}, 20.0)
    assert first == second
    await probe.close()
    assert await probe.ask({}, 20.0) != first
    await probe.close()


async def test_a_process_that_misses_its_deadline_is_killed_with_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    probe = child(HANG, str(note))
    with pytest.raises(ProbeLost, match=r"no answer within 1 s: its process was killed"):
        await probe.ask({}, 1.0)
    started = int(note.read_text())
    async with asyncio.timeout(20):
        while Path(f"/proc/{started}").exists() and "Z" not in Path(f"/proc/{started}/stat").read_text().split()[2]:
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(7)", "ended with 7"),
        ("input(); print('nonsense', flush=True); input()", "is no JSON object"),
        ('input(); print(\'{"error": "ValueError: x"}\', flush=True); input()', "it failed: ValueError: x"),
        ("input(); print('x' * (2 << 20), flush=True); input()", "its process failed"),
    ],
)
async def test_a_process_that_does_not_answer_as_it_should_is_no_reading(program: str, why: str) -> None:
    probe = child(program)
    with pytest.raises(ProbeLost, match=why):
        await probe.ask({}, 20.0)
    await probe.close()


async def test_every_source_answers_for_a_recorded_node(tmp_path: Path) -> None:
    root = Root(tmp_path)
    for source, part in (("gpu", "gpus"), ("network", "ports"), ("host", "memory")):
        probe = Child(source)
        reading = await probe.ask({"root": str(root.path), "source": "file"}, 30.0)
        assert reading[part]
        await probe.close()


async def test_a_flood_in_the_kernel_log_is_a_few_signs_with_their_counts(tmp_path: Path) -> None:
    root = Root(tmp_path)
    texts = [f"NVRM: Xid (PCI:0000:{0x10 + at % 3:02x}:00): 79, pid={at}" for at in range(3000)]
    root.kernel("known already", *texts)
    probe, request = Child("kernel"), {"root": str(root.path), "config": "", "after": 1}
    counts: dict[str, int] = {}
    lines = 0
    line = await probe.line(request, 30.0)
    while "sign" in line:
        name = line["sign"]["entity"]["name"]
        counts[name] = counts.get(name, 0) + line["count"]
        lines += 1
        line = await probe.line(None, 30.0)
    assert counts == {"0000:10:00": 1000, "0000:11:00": 1000, "0000:12:00": 1000}
    assert lines == 3
    assert line == {"alive": 3001}, "all signs of a batch come before its end counts as read"
    root.kernel("NVRM: Xid (PCI:0000:10:00): 48, DBE", facility=1)
    root.kernel("NVRM: Xid (PCI:0000:11:00): 48, DBE")
    line = await probe.line(None, 30.0)
    assert (line["sign"]["signal"], line["sign"]["entity"]["name"], line["sequence"]) == ("xid-48", "0000:11:00", 3001)
    await probe.close()


async def test_a_log_that_is_not_there_is_said(tmp_path: Path) -> None:
    Root(tmp_path)
    (tmp_path / "dev/kmsg").unlink()
    probe = Child("kernel")
    line = await probe.line({"root": str(tmp_path), "config": "", "after": -1}, 30.0)
    assert line == {"error": f"{tmp_path}/dev/kmsg: No such file or directory"}
    await probe.close()


async def test_a_script_says_its_code_and_the_end_of_its_words(tmp_path: Path) -> None:
    script = tmp_path / "check.sh"
    script.write_text("#!/bin/sh\nyes x | head -c 100000; echo last; exit 2\n")
    script.chmod(0o755)
    code, said = await run_script((str(script),), 20.0)
    assert code == 2
    assert said.endswith("x\nlast\n")
    assert len(said) <= 8192
    with pytest.raises(ProbeLost, match=r"took longer than 0\.5 s and was killed"):
        await run_script(("/bin/sleep", "60"), 0.5)
    with pytest.raises(ProbeLost, match="cannot be started: No such file"):
        await run_script((str(tmp_path / "none"),), 1.0)
    with pytest.raises(ProbeLost, match="killed by signal 9"):
        await run_script(("/bin/sh", "-c", "kill -9 $$"), 20.0)


def test_storage_is_written_read_back_and_left_as_it_was(tmp_path: Path) -> None:
    found = read({"path": str(tmp_path), "write": True, "bytes": 100_000, "node": "n1"})
    assert found["same"]
    assert found["free_bytes"] > 0
    assert os.listdir(tmp_path) == []
    assert "same" not in read({"path": str(tmp_path), "write": False, "bytes": 1, "node": "n1"})
    assert read({"path": str(tmp_path / "none"), "write": True, "bytes": 1, "node": "n1"})["error"] == "ENOENT"


def test_a_full_disk_is_told_by_its_error() -> None:
    found: dict[str, object] = read({"path": "/dev/full", "write": True, "bytes": 1, "node": "n1"})
    assert found["error"] == "ENOTDIR", "a device is no folder"


# What the driver answers


class NVMLError(Exception):
    """As pynvml's."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class Driver:
    """Answers some of NVML's questions; for the rest the GPU has no answer."""

    NVMLError = NVMLError
    NVML_NVLINK_MAX_LINKS = 2
    lost = False

    def nvmlInit(self) -> None:
        """Nothing to do."""

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlEventSetCreate(self) -> None:
        raise NVMLError(3)

    def nvmlDeviceGetPciInfo(self, _handle: int) -> object:
        return type("Info", (), {"busId": "00000000:3B:00.0"})()

    def nvmlDeviceGetUUID(self, _handle: int) -> str:
        return "GPU-0"

    def nvmlDeviceGetFieldValues(self, _handle: int, numbers: list[int]) -> list[object]:
        value = type("Union", (), {"uiVal": 2})()
        made = [{"fieldId": n, "nvmlReturn": 0 if n == 230 else 3, "valueType": 1, "value": value} for n in numbers]
        return [type("Value", (), each)() for each in made]

    def nvmlDeviceGetRemappedRows(self, _handle: int) -> tuple[int, int, int, int]:
        return (5, 1, 1, 0)

    def nvmlDeviceGetTemperature(self, _handle: int, _sensor: int) -> int:
        if self.lost:
            raise NVMLError(15)
        return 40

    def nvmlDeviceGetPowerUsage(self, _handle: int) -> int:
        raise NVMLError(3)


def test_what_a_gpu_cannot_answer_is_left_out_and_what_speaks_for_itself_is_told() -> None:
    driver = Driver()
    nvml = Nvml(driver)
    (gpu,) = nvml.read()["gpus"]
    assert (gpu["pci"], gpu["recovery_action"], gpu["remap_pending"]) == ("00000000:3B:00.0", 2, 1)
    assert (gpu["temperature_c"], gpu["power_mw"], gpu["memory_temperature_c"]) == (40, None, None)
    assert "error" not in gpu
    driver.lost = True
    (gpu,) = nvml.read()["gpus"]
    assert (gpu["pci"], gpu["error"]) == ("00000000:3B:00.0", 15)


# On the disk


def test_conditions_and_clearings_outlive_the_agent(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.load(RULES) == (Kept(), "")
    state = conditions.State()
    for fact in (
        Booted(at=1.0, boot_id="a"),
        Happened(at=2.0, signal="xid-79", text="gone"),
        Happened(at=2.0, signal="xid-54", text="no power"),
        Cleared(at=3.0, kind="xid-54"),
    ):
        state = conditions.step(state, fact, RULES)
    folder.save(kept_of(state, 17, {"mlx5_0/1": 400.0}))
    kept, warning = folder.load(RULES)
    assert (warning, kept.sequence, kept.ports) == ("", 17, {"mlx5_0/1": 400.0})
    again = state_of(kept)
    assert conditions.told(again) == conditions.told(state)
    assert conditions.step(again, Happened(at=2.5, signal="xid-54", text="read again"), RULES) == again


def test_a_damaged_file_is_said_and_begins_anew(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.save(Kept(sequence=3))
    (folder.path / "kept.json").write_text('{"sequence": "x"}')
    kept, warning = folder.load(RULES)
    assert kept == Kept()
    assert "the kernel log is read again" in warning


def test_a_hold_ends_by_itself_and_one_that_nobody_understands_holds_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.hold(0.0) is None
    folder.set_hold(Hold(until_s=100.0, reason="reset"))
    assert folder.hold(99.0) == Hold(until_s=100.0, reason="reset")
    assert folder.hold(100.0) is None
    folder.set_hold(Hold(until_s=1e12, reason="for ever"))
    assert folder.hold(0.0) is None, "nobody holds for longer than a day"
    (folder.path / "hold.json").write_text("{")
    assert folder.hold(0.0) is None
    assert folder.release()
    assert not folder.release()


def test_clearings_are_taken_once_and_in_their_order(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.clear(2.0, "", "")
    folder.clear(1.0, "xid-54", "0000:3b:00")
    (folder.path / "clear" / "bad.json").write_text(json.dumps({"at": "x"}))
    assert folder.take_clearings() == [Cleared(at=1.0, kind="xid-54", entity="0000:3b:00"), Cleared(at=2.0)]
    assert folder.take_clearings() == []
