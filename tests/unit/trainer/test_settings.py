"""The worker's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from evertrain.contract import environ
from evertrain.trainer.settings import BadEnvironment, Settings


def test_an_empty_environment_is_a_run_of_its_own_that_saves_nothing() -> None:
    settings = Settings.from_environ({})
    assert not settings.managed
    assert settings.checkpoint_root == ""


def test_a_launchers_directory_goes_before_the_scripts_and_holds_a_folder_for_each_job() -> None:
    env = {environ.BEACON: "/b", environ.JOB: "name", environ.JOB_ID: "id-1", environ.CHECKPOINT_DIR: "/ck"}
    settings = Settings.from_environ(env, checkpoint_dir="mine")
    assert settings.managed
    assert settings.checkpoint_root == "/ck/id-1"


def test_a_run_of_its_own_uses_its_directory_directly(tmp_path: Path) -> None:
    assert Settings.from_environ({}, checkpoint_dir=str(tmp_path)).checkpoint_root == str(tmp_path)


def test_a_url_holds_a_folder_for_each_job_too() -> None:
    env = {environ.BEACON: "/b", environ.JOB_ID: "id-1", environ.CHECKPOINT_DIR: "s3://bucket/prefix/"}
    assert Settings.from_environ(env).checkpoint_root == "s3://bucket/prefix/id-1"


def test_saves_may_be_as_often_as_is_best() -> None:
    settings = Settings.from_environ({environ.CHECKPOINT_EVERY: "auto", environ.MTBF_S: "3600.5"})
    assert (settings.checkpoint_auto, settings.checkpoint_every_steps, settings.mtbf_s) == (True, 0, 3600.5)


def test_copies_in_memory_may_be_as_often_as_is_best() -> None:
    settings = Settings.from_environ({environ.COPY_EVERY: "auto"})
    assert (settings.copy_auto, settings.copy_every_steps) == (True, 0)
    assert Settings.from_environ({environ.COPY_EVERY: "7"}).copy_every_steps == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (environ.MTBF_S, "inf"),
        (environ.CHECKPOINT_EVERY_S, "soon"),
        (environ.CHECKPOINT_EVERY, "often"),
        (environ.CHECKPOINT_KEEP, "0"),
        (environ.GENERATION, "-1"),
        ("RANK", "x"),
    ],
)
def test_a_number_that_is_none_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(BadEnvironment, match=name):
        Settings.from_environ({name: value})


def test_a_drill_has_nowhere_to_save_whatever_launcher_and_script_say() -> None:
    env = {environ.BEACON: "/b", environ.JOB_ID: "a.drill.1", environ.CHECKPOINT_DIR: "/ck", environ.DRILL_STEPS: "3"}
    settings = Settings.from_environ(env, checkpoint_dir="mine")
    assert settings.checkpoint_root == ""
    assert (settings.drill_steps, settings.trail_steps) == (3, 3)
