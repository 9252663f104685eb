"""Lines of logs: prefixes understood, records joined, repeats folded, size bounded."""

from __future__ import annotations

import json

import pytest

from evertrain.contract.secrets import redacted
from evertrain.diagnosis.evidence import Capture, Clock, SourceKind
from evertrain.diagnosis.naming import origin_of
from evertrain.diagnosis.reading import LINE_CHARS_MAX, LINES_HEAD_MAX, LINES_TAIL_MAX, read
from support.evidence import lines


@pytest.mark.parametrize(
    ("raw", "rank", "node", "text"),
    [
        ("[3] KeyError: 'x'", 3, None, "KeyError: 'x'"),
        ("[rank3]: KeyError: 'x'", 3, None, "KeyError: 'x'"),
        ("[rank3]:[E513 10:30:00.120 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog", 3, None, "Watchdog"),
        ("[80746] [rank0]:[E321 02:07:08.4 P.cpp:607] [Rank 0] Watchdog", 0, None, "Watchdog"),
        ("12: KeyError: 'x'", 12, None, "KeyError: 'x'"),
        ("node42: KeyError: 'x'", None, "node42", "KeyError: 'x'"),
        ("gpu-a03: [rank7]: KeyError: 'x'", 7, "gpu-a03", "KeyError: 'x'"),
        ("[gpu-a03:5] KeyError: 'x'", 5, "gpu-a03", "KeyError: 'x'"),
        ("[2/8] KeyError: 'x'", 2, None, "KeyError: 'x'"),
        ("(rank 4) KeyError: 'x'", 4, None, "KeyError: 'x'"),
        ("2025-01-04 11:00:01,120 ERROR KeyError: 'x'", None, None, "KeyError: 'x'"),
        ("2026-01-05T10:00:00.123Z stderr F [9] KeyError: 'x'", 9, None, "KeyError: 'x'"),
        ("[1,12]<stdout>:host-a:815:864 [0] NCCL WARN x", 12, "host-a", "NCCL WARN x"),
        (
            "W0409 07:28:49.530 torch/distributed/elastic/agent/server/api.py:719] Received 15",
            None,
            None,
            "Received 15",
        ),
        (
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9)",
            None,
            None,
            "failed (exitcode: -9)",
        ),
        ("trainer-3  | KeyError: 'x'", None, None, "KeyError: 'x'"),
        ("\x1b[36m[5] KeyError: 'x'\x1b[0m", 5, None, "KeyError: 'x'"),
        (json.dumps({"log": "[6] KeyError: 'x'\n", "stream": "stderr"}), 6, None, "KeyError: 'x'"),
        (
            "libcudart.so.12: cannot open shared object file",
            None,
            None,
            "libcudart.so.12: cannot open shared object file",
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 12028, x",
            None,
            None,
            "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 12028, x",
        ),
    ],
)
def test_prefixes_of_loggers_and_launchers_are_taken_off(
    raw: str, rank: int | None, node: str | None, text: str
) -> None:
    (line,) = lines(raw)
    assert (line.origin.rank, line.origin.node, line.text) == (rank, node, text)


@pytest.mark.parametrize(
    ("raw", "clock", "at_s"),
    [
        ("10:00:05 x", Clock.DAY, 36005.0),
        ("[10:00:05] x", Clock.DAY, 36005.0),
        ("E0510 20:48:44.5 1 add_port.cc:83] x", Clock.DAY, 74924.5),
        ("[ 1843.308145] x", Clock.UPTIME, 1843.308145),
        ("6,3964,206764307,-;x", Clock.UPTIME, 206.764307),
        ("<4>[ 12.5] x", Clock.UPTIME, 12.5),
        ("t+6h12m x", Clock.ELAPSED, 22320.0),
        ("t+4s x", Clock.ELAPSED, 4.0),
        ("day2 x", Clock.ELAPSED, 172800.0),
        ("Sep 10 12:00:00 host1 kernel: x", Clock.DAY, 43200.0),
        ("12/09 06:49:23 - x", Clock.DAY, 24563.0),
    ],
)
def test_times_of_many_forms_are_read(raw: str, clock: Clock, at_s: float) -> None:
    (line,) = lines(raw)
    assert line.at is not None
    assert (line.at.clock, line.text) == (clock, "x")
    assert line.at.at_s == pytest.approx(at_s)


def test_dates_compare_with_each_other_and_with_times_of_day_but_not_with_an_uptime() -> None:
    dated, later, daily, uptime = (
        line.at for line in lines("2025-12-31 23:59:58 a\n[Thu Jan  1 00:00:03 2026] b\n00:00:05 c\n[ 5.0] d")
    )
    assert dated
    assert later
    assert daily
    assert uptime
    assert dated.before(later) == 5
    assert later.before(daily) == 2
    assert later.before(uptime) is None


def test_a_kernel_record_of_several_lines_is_one() -> None:
    text = (
        "[dmesg@b07] [ 1843.3] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "[dmesg@b07]                NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "[dmesg@b07]                NVRM: fallen off the bus and is not responding to commands.\n"
        "[dmesg@b07] [ 1843.4] NVRM: The NVIDIA probe routine failed for 1 device(s)."
    )
    first, second = lines(text)
    assert "0000:b3:00.0" in first.text
    assert "fallen off the bus" in first.text
    assert "probe routine" in second.text


def test_a_traceback_is_its_last_line_with_the_place_and_what_was_raised_meanwhile_is_told_apart() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/a/data.py", line 44, in get\n    return index[key]\n'
        "KeyError: 'image_id'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/a/run.py", line 9, in main\nRuntimeError: closing failed'
    )
    cause, after = lines(text)
    assert (cause.text, cause.where, cause.secondary) == ("KeyError: 'image_id'", "/a/data.py:44 in get", False)
    assert (after.where, after.secondary) == ("/a/run.py:9 in main", True)


def test_repeats_are_counted_whether_they_stand_there_or_are_told() -> None:
    (line,) = lines("same thing\n" * 640)
    assert line.count == 640
    (line,) = lines("same thing\n(repeated 640 times)")
    assert line.count == 640
    assert len(lines("\n".join(f"counter {number}" for number in range(5000)))) < 200


def test_a_text_without_end_is_read_at_its_head_and_its_tail() -> None:
    size = LINES_HEAD_MAX + LINES_TAIL_MAX + 1000
    text = "\n".join(f"{'x' * (number % 97)}" for number in range(size))
    found = read([Capture(name="big", text="first\n" + text + "\nlast" + "y" * 2 * LINE_CHARS_MAX)])
    assert found[0].text == "first"
    assert len(found[-1].text) == LINE_CHARS_MAX


def test_headers_of_files_put_together_say_who_wrote_what_follows() -> None:
    text = "--- rank 3\nKeyError: 'x'\n==> dmesg@gpu-a03 <==\nNVRM: something\n--- not a header of anybody ---\nmore"
    first, second, *_ = lines(text)
    assert first.origin.rank == 3
    assert (second.origin.kind, second.origin.node) == (SourceKind.KERNEL, "gpu-a03")


@pytest.mark.parametrize(
    ("name", "kind", "node", "rank"),
    [
        ("rank3.log", SourceKind.RANK, None, 3),
        ("node-7/rank_3.err", SourceKind.RANK, "node-7", 3),
        ("attempt_0/5/stderr.log", SourceKind.RANK, None, 5),
        ("17", SourceKind.RANK, None, 17),
        ("dmesg@gpu-a03", SourceKind.KERNEL, "gpu-a03", None),
        ("gpu-a03.dmesg.log", SourceKind.KERNEL, "gpu-a03", None),
        ("node-7/dmesg.txt", SourceKind.KERNEL, "node-7", None),
        ("launcher.log", SourceKind.LAUNCHER, None, None),
        ("scheduler", SourceKind.SCHEDULER, None, None),
        ("run-4711/rank0.log", SourceKind.RANK, None, 0),
        ("slurm-4711.out", SourceKind.SCHEDULER, None, None),
        ("dmesg-node-3.txt", SourceKind.KERNEL, "node-3", None),
        ("train.log", SourceKind.UNKNOWN, None, None),
    ],
)
def test_names_of_files_say_who_wrote_them(name: str, kind: SourceKind, node: str | None, rank: int | None) -> None:
    origin = origin_of(name)
    assert (origin.kind, origin.node, origin.rank) == (kind, node, rank)


@pytest.mark.parametrize(
    "secret",
    [
        "hf_abcdefghijklmnopqrstuvwx",
        "Authorization: Bearer abcdef123456",
        "WANDB_API_KEY=0123456789abcdef0123456789abcdef",
        "https://user:hunter22@host/x",
        "AKIAABCDEFGHIJKLMNOP",
        "password: 'correct horse'",
    ],
)
def test_secrets_are_covered_in_what_is_quoted(secret: str) -> None:
    covered = redacted(f"failed with {secret} at the end")
    assert "[redacted]" in covered
    for part in ("abcdef", "0123456789abcdef", "hunter22", "correct"):
        assert part not in covered
