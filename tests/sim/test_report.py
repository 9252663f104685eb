"""A violation's report says all that an engineer needs; a found seed is a file that can be played again."""

from __future__ import annotations

from pathlib import Path

import pytest

from evertrain.chaos.sim import found
from evertrain.chaos.sim.check import report
from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.check.story import Story
from evertrain.chaos.sim.found import BadFound, Found
from evertrain.chaos.sim.history import (
    CheckpointSaved,
    FaultBegan,
    LauncherStarted,
    Ordered,
    WorkersEnded,
    WorkersStarted,
)
from evertrain.chaos.sim.plan import read_all
from support.checked import a_line

VIOLATION = Violation(at_s=3601.5, invariant="a promise", text="a.1 was given up", job="a")
PLAN = read_all("at 3600s for 20s node_partition n3 size=1")
HASH = "0123456789abcdef0123456789abcdef01234567"


class TestReport:
    def test_it_names_seed_commit_promise_story_and_faults(self) -> None:
        text = report.write(VIOLATION, seed=17, commit=HASH, story=["  3600.00  fault begins"], plan=PLAN, planned=12)
        assert text == (
            f"seed 17\ncommit {HASH}\nbroken at 3601.500 s: a promise\n  a.1 was given up\n\n"
            "story:\n    3600.00  fault begins\n\n"
            "faults that it takes (1 of 12):\n  at 3600s for 20s node_partition n3 size=1\n"
        )

    def test_it_says_when_no_fault_is_needed(self) -> None:
        text = report.write(VIOLATION, seed=17, commit=HASH, story=[], plan=[], planned=12)
        assert text.endswith("faults that it takes (0 of 12):\n  none\n")


class TestCommit:
    def test_a_branchs_commit_is_found_from_a_folder_below(self, tmp_path: Path) -> None:
        (tmp_path / ".git/refs/heads").mkdir(parents=True)
        (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (tmp_path / ".git/refs/heads/main").write_text(f"{HASH}\n")
        (tmp_path / "a/b").mkdir(parents=True)
        assert report.commit_of(tmp_path / "a/b") == HASH

    def test_a_packed_branch_is_found(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (tmp_path / ".git/packed-refs").write_text(f"# pack-refs\n{HASH} refs/heads/main\n")
        assert report.commit_of(tmp_path) == HASH

    def test_a_detached_head_is_itself(self, tmp_path: Path) -> None:
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git/HEAD").write_text(f"{HASH}\n")
        assert report.commit_of(tmp_path) == HASH

    def test_a_worktree_leads_to_its_repository(self, tmp_path: Path) -> None:
        home = tmp_path / "repository/.git/worktrees/w"
        home.mkdir(parents=True)
        (home / "HEAD").write_text("ref: refs/heads/topic\n")
        (home / "commondir").write_text("../..\n")
        (tmp_path / "repository/.git/refs/heads").mkdir(parents=True)
        (tmp_path / "repository/.git/refs/heads/topic").write_text(f"{HASH}\n")
        (tmp_path / "w").mkdir()
        (tmp_path / "w/.git").write_text(f"gitdir: {home}\n")
        assert report.commit_of(tmp_path / "w") == HASH

    def test_elsewhere_it_is_unknown(self, tmp_path: Path) -> None:
        assert report.commit_of(tmp_path) == report.UNKNOWN_COMMIT


class TestStory:
    def story(self) -> Story:
        story = Story()
        story.take(1.0, LauncherStarted("n1", "a.1", "n1-L1"))
        story.take(2.0, WorkersStarted("n1", "a.1", 1, "n1-L1"))
        story.take(2.0, WorkersStarted("n3", "b.1", 1, "n3-L1"))
        story.take(3.0, FaultBegan(0, "agent_crash", "n3"))
        story.take(3.5, Ordered("c1", 1, "n1", ()))
        story.take(4.0, a_line(1, "node.unknown", node="n1"))
        story.take(4.0, a_line(2, "node.unknown", node="n3"))
        story.take(5.0, CheckpointSaved("a.1", 1, 100, "p"))
        story.take(9000.0, WorkersEnded("n1", "a.1", 1, "ordered to stop"))
        return story

    def test_it_tells_the_job_its_nodes_and_the_faults_up_to_the_violation(self) -> None:
        text = "\n".join(self.story().of(VIOLATION))
        assert "a: workers of generation 1 started on n1" in text
        assert "fault agent_crash of n3 begins" in text
        assert "n1 out of sight" in text
        assert "step 100" in text
        assert "b:" not in text
        assert "n3 out of sight" not in text
        assert "ended" not in text

    def test_of_a_violation_without_a_job_it_tells_all(self) -> None:
        text = "\n".join(self.story().of(Violation(at_s=10.0, invariant="x", text="y")))
        assert "b: workers of generation 1 started on n3" in text


class TestFound:
    FOUND = Found(seed=17, nodes=16, hours=24.0, plan=PLAN)

    def test_it_is_read_as_it_was_written(self) -> None:
        text = found.write(self.FOUND, VIOLATION, commit=HASH, story=["  3600.00  fault begins"])
        assert text.splitlines()[:2] == ["# Broken at 3601.500 s: a promise.", "# a.1 was given up"]
        assert text.splitlines()[-2:] == [
            "swarm seed=17 nodes=16 hours=24",
            "at 3600s for 20s node_partition n3 size=1",
        ]
        assert found.read(text) == self.FOUND

    @pytest.mark.parametrize(
        "text", ["", "# only a comment\n", "at 1s for 1s x y", "swarm seed=1", "swarm seed=x nodes"]
    )
    def test_a_file_that_is_none_says_what_is_missing(self, text: str) -> None:
        with pytest.raises(BadFound, match="swarm seed=17 nodes=16 hours=24"):
            found.read(text)
