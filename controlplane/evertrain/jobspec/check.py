"""Judges a resolved specification without looking at any file. What a file has to be is load's business.

Every limit is here and has a name, so that the coordinator and ctl refuse the
same things in the same words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from evertrain.contract import environ
from evertrain.contract.adapter import STEP, CheckpointAdapter, faults
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.trail import STEPS_MAX
from evertrain.contract.wire import to_dict
from evertrain.jobspec.problem import FieldPath, Problem, Severity
from evertrain.jobspec.secrets import looks_secret, value_looks_secret
from evertrain.jobspec.units import duration_text, size_text

SPEC_BYTES_MAX: Final = 256 << 10
"""Of the whole specification as JSON; far below what a store takes in one record."""
NAME_LENGTH_MAX: Final = 63
PATH_LENGTH_MAX: Final = 4096
SHOWN_LENGTH_MAX: Final = 200
"""Of a wrong value in a message."""
ARGS_MAX: Final = 1024
ENV_MAX: Final = 1024
PRELOAD_MAX: Final = 64
NODES_MAX: Final = 16384
MICROBATCHES_MAX: Final = 4096
"""Sums in fixed point have room for so many."""
WORKERS_PER_NODE_MAX: Final = 64
DEVICES_PER_WORKER_MAX: Final = 16
EVERY_STEPS_MAX: Final = 1_000_000_000
EVERY_MAX_S: Final = 7 * 86400.0
EXPOSED_MAX_S: Final = 30 * 86400.0
SETTLE_MAX_S: Final = 3600.0
REQUIRED_MAX: Final = 1024
DRILL_EVERY_MIN_S: Final = 60.0
DRILL_EVERY_MAX_S: Final = 30 * 86400.0
KEEP_MIN: Final = 2
"""The newest may turn out damaged, or be the word of a writer that has been fenced off."""
KEEP_MAX: Final = 1000
FAILURES_MAX: Final = 100_000
WITHOUT_PROGRESS_MAX: Final = 1000
LOG_BYTES_MIN: Final = 64 << 10
LOG_BYTES_MAX: Final = 64 << 30
LOG_FILES_MAX: Final = 100
STOP_GRACE_MAX_S: Final = 3600.0
PREPARE_TIMEOUT_MIN_S: Final = 1.0
PREPARE_TIMEOUT_MAX_S: Final = 86400.0

N = TypeVar("N", int, float)

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_SET_FOR_WORKERS: Final = frozenset(
    {
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
        *("ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
        *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE"),
    }
)
_OURS: Final = environ.JOB.partition("_")[0] + "_"


def is_url(text: str) -> bool:
    """Whether a place is an object store's, such as ``s3://bucket/prefix``, and no path."""
    return _URL.match(text) is not None


def check(spec: JobSpec) -> list[Problem]:
    """Everything that is wrong with ``spec``, all at once, and warnings. Without an error it can be run."""
    return [problem for rule in _RULES for problem in rule(spec)]


def _error(path: FieldPath, message: str) -> Problem:
    return Problem(path=path, message=message)


def _warning(path: FieldPath, message: str) -> Problem:
    return Problem(path=path, message=message, severity=Severity.WARNING)


def _name(spec: JobSpec) -> Iterator[Problem]:
    if _NAME.fullmatch(spec.name):
        return
    near = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:NAME_LENGTH_MAX].strip("-")
    hint = f", did you mean {near!r}?" if near else ""
    yield _error(
        ("name",),
        f"{_cut(spec.name)} is no job name: a-z, 0-9 and inner dashes, at most {NAME_LENGTH_MAX} characters{hint}",
    )


def _program(spec: JobSpec) -> Iterator[Problem]:
    if not spec.script and not spec.command:
        yield _error((), "nothing to run: give 'script' (a Python file) or 'command' (program and arguments)")
    if spec.script and spec.command:
        yield _error(("command",), "'script' and 'command' exclude each other: keep one")
    if spec.command and spec.args:
        yield _error(("args",), "belongs to 'script'; put the arguments of a command into 'command'")
    if spec.command and not spec.command[0]:
        yield _error(("command", 0), "the program's name is empty")
    for name, texts in (("args", spec.args), ("command", spec.command)):
        if len(texts) > ARGS_MAX:
            yield _error((name,), f"{len(texts)} items, at most {ARGS_MAX}")
        for position, text in enumerate(texts[:ARGS_MAX]):
            yield from _text((name, position), text)
            if value_looks_secret(text):
                yield _warning((name, position), f"looks like a secret; {_FILE_INSTEAD}")


def _paths(spec: JobSpec) -> Iterator[Problem]:
    paths = {("script",): spec.script, ("workdir",): spec.workdir, ("checkpoint", "dir"): spec.checkpoint.dir}
    for path, text in paths.items():
        yield from _text(path, text, length_max=PATH_LENGTH_MAX)
        if text and not text.startswith("/") and not (path == ("checkpoint", "dir") and is_url(text)):
            yield _error(path, f"{_cut(text)} is not absolute; nodes know no other folder to start from")
    yield from _text(("python",), spec.python, length_max=PATH_LENGTH_MAX)
    if "/" in spec.python and not spec.python.startswith("/"):
        yield _error(("python",), f"{_cut(spec.python)} is neither absolute nor a plain program name")
    if spec.script and not spec.script.endswith(".py"):
        yield _error(("script",), f"{_cut(spec.script)} is not a Python file (.py); use 'command' for other programs")


def _env(spec: JobSpec) -> Iterator[Problem]:
    if len(spec.env) > ENV_MAX:
        yield _error(("env",), f"{len(spec.env)} variables, at most {ENV_MAX}")
        return
    for name, value in spec.env.items():
        path = ("env", name)
        if not _ENV_NAME.fullmatch(name):
            yield _error(path, "is no variable name: letters, digits and underscores, not beginning with a digit")
        elif name in _SET_FOR_WORKERS or name.startswith(_OURS):
            yield _error(path, "is set for each worker by Evertrain; remove it")
        elif name == "CUDA_VISIBLE_DEVICES" and spec.devices_per_worker:
            yield _error(path, "is set from devices_per_worker; remove one of the two")
        yield from _text(path, value)
        if looks_secret(name, value):
            yield _warning(path, f"looks like a secret; {_FILE_INSTEAD}")


_FILE_INSTEAD: Final = "everybody who may see the job can read it here, a file would keep it to the job"


def _preload(spec: JobSpec) -> Iterator[Problem]:
    if len(spec.preload) > PRELOAD_MAX:
        yield _error(("preload",), f"{len(spec.preload)} modules, at most {PRELOAD_MAX}")
    for position, module in enumerate(spec.preload[:PRELOAD_MAX]):
        if not _MODULE.fullmatch(module):
            yield _error(("preload", position), f"{_cut(module)} is no module name such as package.module")
        elif module in spec.preload[:position]:
            yield _error(("preload", position), f"{_cut(module)} is listed twice")
    if spec.command and spec.preload:
        yield _error(("preload",), "is for 'script': a command starts without a warm spare")


def _nodes(spec: JobSpec) -> Iterator[Problem]:
    nodes = spec.nodes
    before = [
        *_within(("nodes", "min"), nodes.min, 1, NODES_MAX),
        *_within(("nodes", "max"), nodes.max, 1, NODES_MAX),
        *_within(("nodes", "multiple_of"), nodes.multiple_of, 1, NODES_MAX),
    ]
    yield from before
    if before:
        return
    if nodes.min > nodes.max:
        yield _error(("nodes", "min"), f"{nodes.min} is more than nodes.max, {nodes.max}")
    elif nodes.max // nodes.multiple_of * nodes.multiple_of < nodes.min:
        yield _error(
            ("nodes", "multiple_of"), f"no multiple of {nodes.multiple_of} lies between {nodes.min} and {nodes.max}"
        )


def _counts(spec: JobSpec) -> Iterator[Problem]:
    retry = spec.retry
    yield from _within(("nproc_per_node",), spec.nproc_per_node, 1, WORKERS_PER_NODE_MAX)
    yield from _within(("devices_per_worker",), spec.devices_per_worker, 0, DEVICES_PER_WORKER_MAX)
    yield from _within(("retry", "max_failures"), retry.max_failures, 0, FAILURES_MAX)
    yield from _within(("retry", "max_without_progress"), retry.max_without_progress, 1, WITHOUT_PROGRESS_MAX)
    yield from _within(("logs", "bytes_max"), spec.logs.bytes_max, LOG_BYTES_MIN, LOG_BYTES_MAX, size_text)
    yield from _within(("logs", "files_max"), spec.logs.files_max, 1, LOG_FILES_MAX)


def _checkpoint(spec: JobSpec) -> Iterator[Problem]:
    wanted = spec.checkpoint
    yield from _within(("checkpoint", "every_steps"), wanted.every_steps, 0, EVERY_STEPS_MAX)
    yield from _within(("checkpoint", "every"), wanted.every_s, 0.0, EVERY_MAX_S, duration_text)
    yield from _within(("checkpoint", "keep_last"), wanted.keep, KEEP_MIN, KEEP_MAX)
    yield from _within(("checkpoint", "keep_every_steps"), wanted.keep_every_steps, 0, EVERY_STEPS_MAX)
    yield from _within(("checkpoint", "keep_proven"), wanted.keep_proven, 0, KEEP_MAX)
    yield from _within(("checkpoint", "exposed_max"), wanted.exposed_max_s, 0.0, EXPOSED_MAX_S, duration_text)
    yield from _drill(spec)
    if (wanted.every_steps > 0 or wanted.auto) and not wanted.dir:
        yield _error(("checkpoint", "every_steps"), "there is no folder to save in: give checkpoint.dir")
    if wanted.adapter is not None:
        yield from _adapter(spec, wanted.adapter)
    if wanted.auto and wanted.every_steps:
        yield _error(("checkpoint", "every_steps"), "a number and auto exclude each other: keep one")
    yield from _copies(spec)
    if wanted.fixed_size and spec.nodes.min != spec.nodes.max:
        text = (
            f"its checkpoints can't be resharded, so once it has saved it keeps the nodes that it has then; between "
            f"{spec.nodes.min} and {spec.nodes.max} it starts with as many as can be had"
        )
        yield _warning(("checkpoint", "reshard"), text)


def _adapter(spec: JobSpec, adapter: CheckpointAdapter) -> Iterator[Problem]:
    path = ("checkpoint", "adapter")
    if spec.checkpoint.dir:
        text = (
            "the trainer library saves to checkpoint.dir, the adapter is for scripts that save by themselves: keep one"
        )
        yield _error(path, text)
    for name, why in faults(
        kind=adapter.kind,
        pattern=adapter.pattern,
        step_key=adapter.step_key,
        marker=adapter.marker,
        require=adapter.require,
    ):
        yield _error((*path, name), why)
    last = adapter.pattern.rpartition("/")[2]
    if not (STEP in last or "*" in last or adapter.step_key):
        yield _error((*path, "pattern"), f"tells no step: put {STEP} into the name, or give step_key")
    if not adapter.pattern.startswith("/"):
        yield _error((*path, "pattern"), f"{_cut(adapter.pattern)} is not absolute; nodes know no other folder")
    if len(adapter.require) > REQUIRED_MAX:
        yield _error((*path, "require"), f"{len(adapter.require)} files, at most {REQUIRED_MAX}")
    texts = {"pattern": adapter.pattern, "step_key": adapter.step_key, "marker": adapter.marker}
    for name, text in (*texts.items(), *(("require", each) for each in adapter.require)):
        yield from _text((*path, name), text, length_max=PATH_LENGTH_MAX)
    yield from _within((*path, "settle"), adapter.settle_s, 0.0, SETTLE_MAX_S, duration_text)


def _reproducible(spec: JobSpec) -> Iterator[Problem]:
    count, path = spec.reproducible_microbatches, ("reproducible", "microbatches")
    before = list(_within(path, count, 0, MICROBATCHES_MAX))
    yield from before
    least, most = spec.nodes.min * spec.nproc_per_node, spec.nodes.max * spec.nproc_per_node
    if not count or before:
        return
    if count < least or not spec.nodes_most // spec.nodes.multiple_of * spec.nodes.multiple_of >= spec.nodes.min:
        yield _error(path, f"{count} microbatches cannot be shared by the {least} workers of the smallest gang")
    elif count < most:
        yield _warning(path, f"every worker needs a microbatch, so the gang has at most {spec.nodes_most} nodes")
    if spec.command:
        yield _warning(path, "a command has to use the trainer library to the end: nothing else makes it reproducible")


def _copies(spec: JobSpec) -> Iterator[Problem]:
    wanted = spec.checkpoint
    yield from _within(("checkpoint", "memory_every_steps"), wanted.memory_every_steps, 0, EVERY_STEPS_MAX)
    if wanted.copies and not wanted.dir:
        yield _error(("checkpoint", "memory_every_steps"), "copies in memory go with checkpoints: give checkpoint.dir")
    if wanted.memory_auto and wanted.memory_every_steps:
        yield _error(("checkpoint", "memory_every_steps"), "a number and auto exclude each other: keep one")
    if wanted.peer_copies and not wanted.copies:
        text = "there are no copies in memory to keep on another node: give checkpoint.memory_every_steps"
        yield _error(("checkpoint", "peer_copies"), text)
    if wanted.peer_copies and spec.nodes.max == 1:
        yield _warning(("checkpoint", "peer_copies"), "a gang of one node has no other node to keep its copies")


def _drill(spec: JobSpec) -> Iterator[Problem]:
    path, wanted = ("checkpoint", "drill"), spec.checkpoint.drill
    if wanted.every_s:
        yield from _within((*path, "every"), wanted.every_s, DRILL_EVERY_MIN_S, DRILL_EVERY_MAX_S, duration_text)
        if not spec.checkpoint.dir:
            yield _error((*path, "every"), "there are no checkpoints to drill: give checkpoint.dir")
        if not wanted.steps:
            yield _error((*path, "steps"), "a drill trains at least one step")
    yield from _within((*path, "steps"), wanted.steps, 0, STEPS_MAX)
    yield from _within((*path, "tolerance"), wanted.tolerance, 0.0, 1.0)
    yield from _within((*path, "nodes"), wanted.nodes, 0, NODES_MAX)
    if spec.drill_steps:
        yield _error(("drill_steps",), "is set by the coordinator alone: ask for a drill with `ctl checkpoints drill`")


def _durations(spec: JobSpec) -> Iterator[Problem]:
    yield from _within(("stop_grace",), spec.stop_grace_s, 0.0, STOP_GRACE_MAX_S, duration_text)
    yield from _within(
        ("prepare_timeout",), spec.prepare_timeout_s, PREPARE_TIMEOUT_MIN_S, PREPARE_TIMEOUT_MAX_S, duration_text
    )


def _size(spec: JobSpec) -> Iterator[Problem]:
    size = len(json.dumps(to_dict(spec)))
    if size > SPEC_BYTES_MAX:
        yield _error((), f"the specification takes {size} bytes, at most {SPEC_BYTES_MAX}; put long lists into files")


def _within(path: FieldPath, value: N, least: N, most: N, write: Callable[[N], str] = str) -> Iterator[Problem]:
    if not math.isfinite(value):
        yield _error(path, f"{value} is no length of time")
    elif not least <= value <= most:
        yield _error(path, f"{write(value)} is out of range, from {write(least)} to {write(most)} is allowed")


def _text(path: FieldPath, text: str, *, length_max: int = SPEC_BYTES_MAX) -> Iterator[Problem]:
    if len(text) > length_max:
        yield _error(path, f"{len(text)} characters, at most {length_max}")
    if "\0" in text:
        yield _error(path, "contains a NUL character, which no process can be given")
    elif any("\ud800" <= character <= "\udfff" for character in text):
        yield _error(path, "contains half a surrogate pair, which is no valid text")


def _cut(text: str) -> str:
    return repr(text if len(text) <= SHOWN_LENGTH_MAX else text[:SHOWN_LENGTH_MAX] + "...")


_RULES: Final[tuple[Callable[[JobSpec], Iterator[Problem]], ...]] = (
    _name,
    _program,
    _paths,
    _env,
    _preload,
    _nodes,
    _counts,
    _checkpoint,
    _reproducible,
    _durations,
    _size,
)
