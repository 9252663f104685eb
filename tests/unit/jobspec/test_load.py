"""Specification files: what is taken from them, and what is said of those that cannot be used."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from evertrain.contract.adapter import CheckpointAdapter, SaveKind
from evertrain.contract.jobspec import CheckpointPolicy, DrillPolicy, JobSpec, LogPolicy, NodeRange, RetryPolicy
from evertrain.jobspec import Severity
from evertrain.jobspec.check import SPEC_BYTES_MAX
from evertrain.jobspec.load import SpecInvalid, load, load_bytes

from .conftest import Write

OK = "name: tiny\nscript: train.py\n"


def complaints(path: Path) -> list[str]:
    """The lines of a file that cannot be used, with its folder left out."""
    with pytest.raises(SpecInvalid) as caught:
        load(path)
    return [str(problem).replace(f"{path.parent}{os.sep}", "") for problem in caught.value.problems]


def test_a_small_file_gets_the_defaults_of_the_contract(write: Write) -> None:
    path = write(OK)
    loaded = load(path)
    assert loaded.warnings == ()
    assert loaded.spec == JobSpec(name="tiny", script=str(path.parent / "train.py"), workdir=str(path.parent))


def test_every_field_arrives(write: Write) -> None:
    path = write(
        """
name: tiny-lm
script: ./train.py
args: [--steps, 100, --bf16, on]
python: /usr/bin/env
workdir: .
env: {DEBUG: 1, RATIO: 1e-3, FLAG: on, EMPTY: "", ZERO: 010}
preload: [numpy, torch.optim]
nodes: {min: 2, max: 8, multiple_of: 2}
nproc_per_node: 4
devices_per_worker: 1
checkpoint: {dir: ckpt, every_steps: 50, keep: 2}
retry: {max_failures: 3, max_without_progress: 2}
logs: {bytes_max: 1.5GiB, files_max: 2}
stop_grace: 1m30s
prepare_timeout: 45
"""
    )
    folder = path.parent
    assert load(path).spec == JobSpec(
        name="tiny-lm",
        script=str(folder / "train.py"),
        args=("--steps", "100", "--bf16", "on"),
        python="/usr/bin/env",
        workdir=str(folder),
        env={"DEBUG": "1", "RATIO": "1e-3", "FLAG": "on", "EMPTY": "", "ZERO": "010"},
        preload=("numpy", "torch.optim"),
        nodes=NodeRange(min=2, max=8, multiple_of=2),
        nproc_per_node=4,
        devices_per_worker=1,
        checkpoint=CheckpointPolicy(dir=str(folder / "ckpt"), every_steps=50, keep=2),
        retry=RetryPolicy(max_failures=3, max_without_progress=2),
        logs=LogPolicy(bytes_max=3 << 29, files_max=2),
        stop_grace_s=90.0,
        prepare_timeout_s=45.0,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", 6), ("false", 0), ("{microbatches: 12}", 12)],
)
def test_reproducible_mode_has_a_microbatch_for_each_worker_of_the_largest_gang_unless_told(
    write: Write, text: str, expected: int
) -> None:
    spec = load(write(f"{OK}nodes: {{min: 1, max: 3}}\nnproc_per_node: 2\nreproducible: {text}\n")).spec
    assert (spec.reproducible_microbatches, spec.nodes_most) == (expected, 3)


def test_a_gang_is_as_large_as_its_microbatches_allow_and_that_is_said(write: Write) -> None:
    text = f"{OK}nodes: {{min: 2, max: 8}}\nnproc_per_node: 4\nreproducible: "
    few = load(write(f"{text}{{microbatches: 18}}\n"))
    assert few.spec.nodes_most == 4
    assert ["at most 4 nodes" in str(warning) for warning in few.warnings] == [True]
    (line,) = complaints(write(f"{text}{{microbatches: 7}}\n"))
    assert "7 microbatches cannot be shared by the 8 workers of the smallest gang" in line


def test_a_scripts_own_checkpoints_lie_where_it_runs(write: Write) -> None:
    path = write(
        f"{OK}workdir: ..\n"
        "checkpoint:\n  adapter: {kind: folder, pattern: 'out/ck-*', require: [a.bin], settle: 2s}\n"
    )
    assert load(path).spec.checkpoint.adapter == CheckpointAdapter(
        kind=SaveKind.FOLDER, pattern=str(path.parent.parent / "out" / "ck-*"), require=("a.bin",), settle_s=2.0
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{pattern: out/last.pt}", "checkpoint.adapter.pattern: tells no step"),
        ("{pattern: 'out/{step}/x.pt'}", "checkpoint.adapter.pattern: "),
        (
            "{pattern: 'x-{step}', kind: zip}",
            "checkpoint.adapter.kind: expected one of torch_save, dcp, folder, got 'zip'",
        ),
        ("{pattern: 'x-{step}', kind: folder}", "checkpoint.adapter.marker: a folder needs a marker"),
        ("{pattern: 'x-{step}', mark: a}", "checkpoint.adapter.mark: unknown field, did you mean 'marker'?"),
        ("{}", "checkpoint.adapter.pattern: is missing"),
        ("{pattern: 'x-{step}'}\n  dir: ck", "checkpoint.adapter: the trainer library saves to checkpoint.dir"),
    ],
)
def test_an_adapter_that_cannot_work_is_refused(write: Write, text: str, expected: str) -> None:
    lines = complaints(write(f"{OK}checkpoint:\n  adapter: {text}\n"))
    assert [line for line in lines if expected in line], lines


def test_a_plain_number_of_nodes_is_both_ends(write: Write) -> None:
    assert load(write(OK + "nodes: 3\n")).spec.nodes == NodeRange(min=3, max=3)


def test_variables_are_not_expanded(write: Write) -> None:
    spec = load(write(OK + "args: ['${HOME}', $USER, ~/x]\n")).spec
    assert spec.args == ("${HOME}", "$USER", "~/x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OK + "nodes:\n  mn: 2\n  max: 4\n", ["job.yaml:4:3: nodes.mn: unknown field, did you mean 'min'?"]),
        (OK + "scrpt: x\n", ["job.yaml:3:1: scrpt: unknown field, did you mean 'script'?"]),
        (OK + "nproc-per-node: 2\n", ["job.yaml:3:1: nproc-per-node: unknown field, did you mean 'nproc_per_node'?"]),
        (
            OK + "retry: {zzz: 1}\n",
            ["job.yaml:3:9: retry.zzz: unknown field, known are max_failures, max_without_progress"],
        ),
        (OK + "name: again\n", ["job.yaml:3:1: name: given twice, first in line 1"]),
        (OK + "env: {A: x, A: y}\n", ["job.yaml:3:13: env.A: given twice, first in line 3"]),
        (OK + "nodes: {min: 4, max: 2}\n", ["job.yaml:3:14: nodes.min: 4 is more than nodes.max, 2"]),
        (OK + "nodes: {min: 2}\n", ["job.yaml:3:8: nodes.max: is missing"]),
        (
            OK + "nodes: 0\n",
            [
                "job.yaml:3:8: nodes.min: 0 is out of range, from 1 to 16384 is allowed",
                "job.yaml:3:8: nodes.max: 0 is out of range, from 1 to 16384 is allowed",
            ],
        ),
        (OK + "nodes: lots\n", ["job.yaml:3:8: nodes: expected a whole number, got 'lots'"]),
        (
            OK + "nodes: {min: 5, max: 7, multiple_of: 4}\n",
            ["job.yaml:3:38: nodes.multiple_of: no multiple of 4 lies between 5 and 7"],
        ),
        ("script: train.py\n", ["job.yaml:1:1: name: is missing"]),
        (
            "name: x\n",
            [
                "job.yaml:1:1: nothing to run: give 'script' (a Python file) or 'command' (program and arguments)",
            ],
        ),
        (
            OK + "command: [ls]\n",
            ["job.yaml:3:10: command: 'script' and 'command' exclude each other: keep one"],
        ),
        (
            "name: x\ncommand: python train.py --x\n",
            [
                "job.yaml:2:10: command: expected a list, such as [python, train.py, --x]",
            ],
        ),
        (
            "name: x\ncommand: [ls]\nargs: [-l]\n",
            [
                "job.yaml:3:7: args: belongs to 'script'; put the arguments of a command into 'command'",
            ],
        ),
        ("name: x\nscript: trian.py\n", ["job.yaml:2:9: script: trian.py does not exist, did you mean 'train.py'?"]),
        (
            "name: x\nscript: lib/train.py\n",
            [
                "job.yaml:2:9: script: lib/train.py does not exist; its folder lib does not exist",
            ],
        ),
        (
            "name: x\nscript: train.sh\n",
            [
                "job.yaml:2:9: script: 'train.sh' is not a Python file (.py); use 'command' for other programs",
            ],
        ),
        (
            "name: My_Job 2\nscript: train.py\n",
            [
                "job.yaml:1:7: name: 'My_Job 2' is no job name: a-z, 0-9 and inner dashes, at most 63 characters,"
                " did you mean 'my-job-2'?",
            ],
        ),
        (OK + "workdir: nowhere\n", ["job.yaml:3:10: workdir: nowhere is no folder"]),
        (
            OK + "nproc_per_node: '4'\n",
            [
                "job.yaml:3:17: nproc_per_node: expected a whole number, got the text '4'; remove the quotes",
            ],
        ),
        (OK + "nproc_per_node: yes\n", ["job.yaml:3:17: nproc_per_node: expected a whole number, got 'yes'"]),
        (OK + "nproc_per_node: 010\n", ["job.yaml:3:17: nproc_per_node: expected a whole number, got '010'"]),
        (
            OK + "nproc_per_node: 65\n",
            [
                "job.yaml:3:17: nproc_per_node: 65 is out of range, from 1 to 64 is allowed",
            ],
        ),
        (OK + "env:\n  A:\n", ["job.yaml:4:5: env.A: has no value; write '' for an empty one"]),
        (OK + "env: {A: [1]}\n", ["job.yaml:3:10: env.A: expected text, got a list"]),
        (OK + "env: [A=1]\n", ["job.yaml:3:6: env: expected fields, each on a line of its own"]),
        (
            OK + "env: {1A: x}\n",
            [
                "job.yaml:3:11: env.1A: is no variable name: letters, digits and underscores,"
                " not beginning with a digit",
            ],
        ),
        (OK + "env: {RANK: 1}\n", ["job.yaml:3:13: env.RANK: is set for each worker by Evertrain; remove it"]),
        (
            OK + "env: {EVERTRAIN_JOB: x}\n",
            [
                "job.yaml:3:22: env.EVERTRAIN_JOB: is set for each worker by Evertrain; remove it",
            ],
        ),
        (
            OK + "devices_per_worker: 1\nenv: {CUDA_VISIBLE_DEVICES: '0'}\n",
            [
                "job.yaml:4:29: env.CUDA_VISIBLE_DEVICES: is set from devices_per_worker; remove one of the two",
            ],
        ),
        (
            OK + "logs: {bytes_max: 64mib}\n",
            [
                "job.yaml:3:19: logs.bytes_max: '64mib': unknown unit 'mib', did you mean 'MiB'?",
            ],
        ),
        (
            OK + "logs: {bytes_max: 1KiB}\n",
            [
                "job.yaml:3:19: logs.bytes_max: 1KiB is out of range, from 64KiB to 64GiB is allowed",
            ],
        ),
        (
            OK + "stop_grace: 10sec\n",
            [
                "job.yaml:3:13: stop_grace: '10sec': unknown unit 'sec', use one of ms s m h d",
            ],
        ),
        (
            OK + "stop_grace: 1:30\n",
            [
                "job.yaml:3:13: stop_grace: '1:30': expected a duration such as 10s or 2m",
            ],
        ),
        (
            OK + "prepare_timeout: 0\n",
            [
                "job.yaml:3:18: prepare_timeout: 0s is out of range, from 1s to 1d is allowed",
            ],
        ),
        (
            OK + "prepare_timeout:\n",
            [
                "job.yaml:3:17: prepare_timeout: has no value; give a duration such as 10s or remove the field",
            ],
        ),
        (
            OK + "checkpoint: {every_steps: 5}\n",
            [
                "job.yaml:3:27: checkpoint.every_steps: there is no folder to save in: give checkpoint.dir",
            ],
        ),
        (OK + "checkpoint: {dir: train.py}\n", ["job.yaml:3:19: checkpoint.dir: train.py is no folder"]),
        (OK + "checkpoint: often\n", ["job.yaml:3:13: checkpoint: expected fields, each on a line of its own"]),
        (
            OK + "preload: [torch, torch, a-b]\n",
            [
                "job.yaml:3:18: preload[1]: 'torch' is listed twice",
                "job.yaml:3:25: preload[2]: 'a-b' is no module name such as package.module",
            ],
        ),
        (OK + "args: [a, [b]]\n", ["job.yaml:3:11: args[1]: expected text, got a list"]),
        (OK + 'args: ["a\\0b"]\n', ["job.yaml:3:8: args[0]: contains a NUL character, which no process can be given"]),
        (OK + 'args: ["\\uD800"]\n', ["job.yaml:3:8: args[0]: contains half a surrogate pair, which is no valid text"]),
        ("", ["job.yaml:1:1: the file is empty"]),
        ("- a\n- b\n", ["job.yaml:1:1: expected fields"]),
        ("just text\n", ["job.yaml:1:1: expected fields, each on a line of its own"]),
        (
            "name: x\n\tscript: y\n",
            [
                "job.yaml:2:1: not YAML: found character '\\t' that cannot start any token"
                " (while scanning for the next token)",
            ],
        ),
        (
            "name: [x\n",
            [
                "job.yaml:2:1: not YAML: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence)",
            ],
        ),
        (
            OK + "---\nname: y\n",
            [
                "job.yaml:3:1: not YAML: but found another document (expected a single document in the stream)",
            ],
        ),
        ("name: \x07\n", None),
        ("[" * 5000, ["job.yaml: not a specification: more than 100 brackets are opened before one is closed"]),
        ("- " * 5000, ["job.yaml: not a specification: nested hundreds of levels deep"]),
        (
            OK + "env: !!python/object:os.system {}\n",
            [
                "job.yaml:3:6: env: the tag 'tag:yaml.org,2002:python/object:os.system' is not allowed;"
                " write the plain value",
            ],
        ),
        (
            "base: &b {min: 1, max: 2}\nname: x\nscript: train.py\nnodes: {<<: *b}\n",
            [
                "job.yaml:1:1: base: unknown field",
                "job.yaml:4:8: nodes.min: is missing",
                "job.yaml:4:8: nodes.max: is missing",
                "job.yaml:4:9: nodes.<<: merge keys are not supported; write the fields out",
            ],
        ),
        (OK + "? [a]\n: b\n", ["job.yaml:3:3: a key must be plain text"]),
    ],
)
def test_a_bad_file_is_described_in_full(write: Write, text: str, expected: list[str] | None) -> None:
    found = complaints(write(text))
    if expected is None:  # the parser's own words
        assert len(found) == 1
        assert "not YAML" in found[0]
    else:
        assert found == expected


def test_everything_that_is_wrong_is_said_at_once_in_the_order_of_the_file(write: Write) -> None:
    found = complaints(write("name: A\nscript: x.py\nnproc_per_node: many\nnodes: {min: 3, max: 2}\nfoo: 1\nargs: 3\n"))
    assert [line.split(":")[1] for line in found] == ["1", "2", "3", "4", "5", "6"]


def test_aliases_are_followed_and_cannot_unfold_without_bound(write: Write) -> None:
    assert load(write("name: &n tiny\nscript: train.py\nargs: [*n]\n")).spec.args == ("tiny",)
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    for previous, letter in zip("abcdefg", "bcdefgh", strict=True):
        bomb += f"{letter}: &{letter} [{','.join(['*' + previous] * 10)}]\n"
    found = complaints(write(bomb))
    assert [line for line in found if "more than 20000 values" in line]


def test_a_file_that_is_too_large_is_not_parsed(write: Write) -> None:
    path = write("name: tiny\n# " + "x" * SPEC_BYTES_MAX)
    assert complaints(path) == ["job.yaml: larger than 256 KiB; put long lists into files"]


def test_a_specification_that_grows_too_large_is_refused(write: Write) -> None:
    path = write(OK + "args: ['" + "\u00e9" * 60_000 + "']\n")
    assert [line for line in complaints(path) if "the specification takes" in line]


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"name: \xff\n")
    assert complaints(path) == ["job.yaml: not UTF-8 text at byte 6"]


def test_a_missing_file_names_its_neighbour(write: Write) -> None:
    path = write(OK)
    missing = path.with_name("job.yml")
    with pytest.raises(SpecInvalid, match=r"job\.yml: cannot read: No such .*, did you mean 'job\.yaml'"):
        load(missing)


def test_a_folder_in_place_of_a_script_is_told(write: Write) -> None:
    path = write("name: x\nscript: lib.py\n")
    (path.parent / "lib.py").mkdir()
    assert complaints(path) == ["job.yaml:2:9: script: lib.py is a folder"]


def test_a_binary_script_is_refused_and_a_wrong_one_warned_of(write: Write) -> None:
    path = write(OK)
    (path.parent / "train.py").write_bytes(b"\x7fELF\0\0")
    assert complaints(path) == ["job.yaml:2:9: script: train.py is not a Python file: it has NUL bytes in it"]
    (path.parent / "train.py").write_text("def f(:\n")
    (warning,) = load(path).warnings
    assert warning.severity is Severity.WARNING
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"train.py is not understood by Python {ours} in line 1" in str(warning)


def test_a_secret_is_warned_of_without_being_shown(write: Write) -> None:
    loaded = load(write(OK + "env: {HF_TOKEN: hf_abcdefghijklmnopqrstuvwxyz0123456789, PAD_TOKEN: <pad>}\n"))
    (warning,) = loaded.warnings
    assert "job.yaml:3:17: warning: env.HF_TOKEN: looks like a secret" in str(warning)
    assert "hf_abc" not in str(warning)


def test_a_python_that_is_not_here_is_only_warned_of(write: Write) -> None:
    loaded = load(write(OK + "python: venv/bin/python\n"))
    assert loaded.spec.python.endswith("/venv/bin/python")
    assert [str(each) for each in loaded.warnings if "no program on this machine" in str(each)]
    assert load(write(OK + "python: python3.12\n")).spec.python == "python3.12"


def test_the_name_can_be_given_beside_the_file(write: Write) -> None:
    path = write(OK)
    assert load(path, name="trial-2").spec.name == "trial-2"
    with pytest.raises(SpecInvalid, match=r"^--name: 'Trial' is no job name"):
        load(path, name="Trial")


def test_a_file_with_windows_line_ends_and_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    data = b"\xef\xbb\xbf" + OK.replace("\n", "\r\n").encode()
    assert load_bytes(data, folder=tmp_path, shown="x").spec.name == "tiny"


def test_every_field_of_checkpoint_is_read(write: Write) -> None:
    text = (
        "checkpoint: {dir: s3://bucket/jobs, every_steps: auto, every: 10m, keep_last: 5, keep_every_steps: 1000,\n"
        "  keep_proven: 2, exposed_max: 30m, reshard: false, memory_every_steps: 10, peer_copies: true}\nnodes: 2\n"
    )
    assert load(write(OK + text)).spec.checkpoint == CheckpointPolicy(
        dir="s3://bucket/jobs",
        auto=True,
        every_s=600.0,
        keep=5,
        keep_every_steps=1000,
        keep_proven=2,
        exposed_max_s=1800.0,
        fixed_size=True,
        memory_every_steps=10,
        peer_copies=True,
    )


def test_keep_is_an_old_name_of_keep_last(write: Write) -> None:
    assert load(write(f"{OK}checkpoint: {{dir: /c, keep: 7}}\n")).spec.checkpoint.keep == 7
    assert "unknown field" in complaints(write(f"{OK}checkpoint: {{dir: /c, keep: 7, keep_last: 3}}\n"))[0]


@pytest.mark.parametrize("word", ["yes", "'true'", "1"])
def test_reshard_is_true_or_false_and_nothing_like_it(write: Write, word: str) -> None:
    (complaint,) = complaints(write(f"{OK}checkpoint: {{dir: /c, reshard: {word}}}\n"))
    assert "checkpoint.reshard: expected true or false" in complaint


def test_auto_needs_a_folder_to_save_in(write: Write) -> None:
    (complaint,) = complaints(write(f"{OK}checkpoint: {{every_steps: auto}}\n"))
    assert "there is no folder to save in" in complaint


def test_copies_in_memory_are_as_often_as_said_or_as_is_best(write: Write) -> None:
    spec = load(write(f"{OK}checkpoint: {{dir: /c, memory_every_steps: auto}}\n")).spec.checkpoint
    assert (spec.memory_auto, spec.memory_every_steps, spec.copies) == (True, 0, True)
    (complaint,) = complaints(write(f"{OK}checkpoint: {{memory_every_steps: 1}}\n"))
    assert "copies in memory go with checkpoints: give checkpoint.dir" in complaint
    (complaint,) = complaints(write(f"{OK}checkpoint: {{dir: /c, peer_copies: true}}\nnodes: 2\n"))
    assert "checkpoint.peer_copies: there are no copies in memory" in complaint
    (warning,) = load(write(f"{OK}checkpoint: {{dir: /c, memory_every_steps: 1, peer_copies: true}}\n")).warnings
    assert "a gang of one node has no other node" in str(warning)


def test_a_job_that_cannot_reshard_is_told_before_it_starts_that_it_keeps_its_size(write: Write) -> None:
    rigid = f"{OK}checkpoint: {{dir: /c, reshard: false}}\n"
    (warning,) = load(write(f"{rigid}nodes: {{min: 2, max: 4}}\n")).warnings
    assert "checkpoint.reshard: its checkpoints can't be resharded" in str(warning)
    assert load(write(f"{rigid}nodes: 4\n")).warnings == ()


def test_drills_are_off_unless_a_time_is_given_and_every_field_of_them_arrives(write: Write) -> None:
    assert load(write(OK)).spec.checkpoint.drill == DrillPolicy(every_s=0.0, steps=3, tolerance=0.001, nodes=0)
    path = write(f"{OK}checkpoint: {{dir: ck, drill: {{every: 1d, steps: 5, tolerance: 1e-2, nodes: 3}}}}\n")
    wanted = DrillPolicy(every_s=86_400.0, steps=5, tolerance=0.01, nodes=3)
    assert load(path).spec.checkpoint.drill == wanted


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{every: 30s}", "checkpoint.drill.every: 30s is out of range"),
        ("{every: 1d}", "checkpoint.drill.every: there are no checkpoints to drill"),
        ("{steps: 33}", "checkpoint.drill.steps: 33 is out of range"),
        ("{tolerance: tight}", "checkpoint.drill.tolerance: expected a number such as 0.001, got 'tight'"),
        ("{tolerance: 2}", "checkpoint.drill.tolerance: 2.0 is out of range"),
        ("{nodes: some}", "checkpoint.drill.nodes: expected a whole number"),
        ("{step: 3}", "checkpoint.drill.step: unknown field, did you mean 'steps'?"),
    ],
)
def test_what_cannot_be_a_drill_is_said(write: Write, written: str, said: str) -> None:
    assert any(said in line for line in complaints(write(f"{OK}checkpoint: {{drill: {written}}}\n")))
