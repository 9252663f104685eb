"""What holds for every specification: it can be written and read back, and checking never raises."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evertrain.contract.adapter import CheckpointAdapter
from evertrain.contract.jobspec import CheckpointPolicy, JobSpec, LogPolicy, NodeRange, RetryPolicy
from evertrain.contract.wire import from_dict, to_dict
from evertrain.jobspec import check
from evertrain.jobspec.dump import dump
from evertrain.jobspec.load import SpecInvalid, load_bytes
from evertrain.jobspec.problem import errors
from evertrain.jobspec.units import UnitError, duration_text, parse_duration, parse_size, size_text

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
NAME = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
ENV_NAME = st.from_regex(r"X[A-Z0-9_]{0,8}", fullmatch=True)
SMALL = st.integers(1, 60)


@st.composite
def specs(draw: st.DrawFn, folder: str) -> JobSpec:
    """A specification without errors, whose paths exist."""
    least = draw(SMALL)
    script, auto = draw(st.booleans()), draw(st.booleans())
    adapter = CheckpointAdapter(pattern=f"{folder}/x-{{step}}.pt", step_key=draw(TEXT), settle_s=draw(SMALL) / 10)
    if own := draw(st.booleans()):
        auto = False
    return JobSpec(
        name=draw(NAME),
        script=f"{folder}/train.py" if script else "",
        args=tuple(draw(st.lists(TEXT, max_size=4))) if script else (),
        command=() if script else ("/bin/true", *draw(st.lists(TEXT, max_size=3))),
        python=draw(st.sampled_from(["", "python3.12"])),
        workdir=folder,
        env=draw(st.dictionaries(ENV_NAME, TEXT, max_size=4)),
        preload=("torch.optim",) if script and draw(st.booleans()) else (),
        nodes=NodeRange(min=least, max=least + draw(st.integers(0, 5)), multiple_of=1),
        nproc_per_node=draw(SMALL),
        devices_per_worker=draw(st.integers(0, 16)),
        checkpoint=CheckpointPolicy(
            dir="" if own else draw(st.sampled_from([f"{folder}/ckpt", "s3://bucket/prefix"])),
            adapter=adapter if own else None,
            every_steps=0 if auto or own else draw(st.integers(0, 99)),
            auto=auto,
            every_s=draw(st.integers(0, 3_600_000)) / 1000,
            keep=draw(st.integers(2, 60)),
            keep_every_steps=draw(st.integers(0, 99)),
            keep_proven=draw(st.integers(0, 9)),
            exposed_max_s=draw(st.integers(0, 3_600_000)) / 1000,
            fixed_size=draw(st.booleans()),
            memory_every_steps=(copied := 0 if own else draw(st.integers(0, 9))),
            memory_auto=(copied_auto := copied == 0 and not own and draw(st.booleans())),
            peer_copies=(copied > 0 or copied_auto) and draw(st.booleans()),
        ),
        reproducible_microbatches=draw(st.sampled_from([0, 4096])),
        retry=RetryPolicy(max_failures=draw(SMALL), max_without_progress=draw(SMALL)),
        logs=LogPolicy(bytes_max=draw(st.integers(64 << 10, 64 << 30)), files_max=draw(SMALL)),
        stop_grace_s=draw(st.integers(0, 3_600_000)) / 1000,
        prepare_timeout_s=float(draw(st.integers(1, 86400))),
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(data=st.data())
def test_what_dump_writes_load_reads_back(tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / "train.py").touch()
    spec = data.draw(specs(str(tmp_path)))
    assert errors(check(spec)) == []
    loaded = load_bytes(dump(spec).encode(), folder=Path("/"), shown="dumped").spec
    assert loaded == spec
    assert from_dict(JobSpec, json.loads(json.dumps(to_dict(loaded)))) == spec


@given(
    name=st.text(max_size=80),
    texts=st.lists(st.text(max_size=10), max_size=3).map(tuple),
    number=st.integers(-(2**40), 2**40),
    length_s=st.floats(),
    path=st.text(max_size=20),
)
def test_check_never_raises_and_never_stays_silent_about_a_bad_name(
    name: str, texts: tuple[str, ...], number: int, length_s: float, path: str
) -> None:
    spec = JobSpec(
        name=name,
        script=path,
        command=texts,
        args=texts,
        python=path,
        env=dict.fromkeys(texts, path),
        preload=texts,
        nodes=NodeRange(min=number, max=number, multiple_of=number),
        nproc_per_node=number,
        stop_grace_s=length_s,
        prepare_timeout_s=length_s,
    )
    found = errors(check(spec))
    assert all(str(problem) and "\n" not in str(problem) for problem in found)
    fine = name.isascii() and name == name.lower() and name.strip("-") == name and name.replace("-", "a").isalnum()
    if not (fine and 1 <= len(name) <= 63):
        assert [problem for problem in found if problem.path == ("name",)]
    if math.isnan(length_s):
        assert [problem for problem in found if problem.path == ("stop_grace",)]


@settings(deadline=None, max_examples=200)
@given(text=st.text(max_size=200) | st.from_regex(r"(name|nodes|env|args|x): ?[\[{\]},a-z:&*!'\"\n -]{0,60}\n"))
def test_any_text_is_read_or_described(text: str) -> None:
    with pytest.raises(SpecInvalid) as caught:  # no such text names a script that exists
        load_bytes(text.encode(errors="surrogatepass"), folder=Path("/nonexistent"), shown="x")
    assert all(str(problem).startswith("x") for problem in caught.value.problems)


@given(st.integers(0, 1 << 50))
def test_a_size_is_read_back(size: int) -> None:
    assert parse_size(size_text(size)) == size


@given(st.integers(0, 10**12))
def test_a_duration_is_read_back_to_the_millisecond(milliseconds: int) -> None:
    assert parse_duration(duration_text(milliseconds / 1000)) == milliseconds / 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10s", 10), ("2m", 120), ("1h30m", 5400), ("250ms", 0.25), ("1.5", 1.5), ("7", 7), ("1d", 86400), (" 3 s", 3)],
)
def test_durations(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "1h30", "ten", "1:30", "1e3", "1" * 65, ".inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("4096", 4096), ("64MiB", 64 << 20), ("1.5 GiB", 3 << 29), ("500MB", 500_000_000), ("0B", 0)]
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.5B", "1 XB", "0x10", "1" * 65])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UnitError):
        parse_size(text)
