"""A violation as an engineer reads it: seed, commit, what was broken, the story, the faults that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evertrain.chaos.sim.check.checker import Violation
from evertrain.chaos.sim.plan import Planned

UNKNOWN_COMMIT = "unknown (not a checkout)"


def write(
    violation: Violation,
    *,
    seed: int,
    commit: str,
    story: Sequence[str],
    plan: Sequence[Planned],
    planned: int,
) -> str:
    """The whole report; ``plan`` is what is left of ``planned`` faults."""
    return (
        "\n".join(
            [
                f"seed {seed}",
                f"commit {commit}",
                f"broken at {violation.at_s:.3f} s: {violation.invariant}",
                f"  {violation.text}",
                "",
                "story:",
                *(f"  {line}" for line in story),
                "",
                f"faults that it takes ({len(plan)} of {planned}):",
                *(f"  {each}" for each in plan),
                "" if plan else "  none",
            ]
        ).rstrip("\n")
        + "\n"
    )


def commit_of(folder: Path) -> str:
    """The commit that is checked out where ``folder`` lies, read from git's own files."""
    git = next((each / ".git" for each in (folder, *folder.parents) if (each / ".git").exists()), None)
    if git is None:
        return UNKNOWN_COMMIT
    if git.is_file():  # a worktree: "gitdir: PATH"
        git = (git.parent / git.read_text().partition(": ")[2].strip()).resolve()
    head = (git / "HEAD").read_text().strip()
    reference = head.removeprefix("ref: ")
    return head if reference == head else _resolve(git, reference)


def _resolve(git: Path, reference: str) -> str:
    common = git / "commondir"
    for home in (git, (git / common.read_text().strip()).resolve() if common.exists() else git):
        if (home / reference).exists():
            return (home / reference).read_text().strip()
        packed = home / "packed-refs"
        lines = packed.read_text().splitlines() if packed.exists() else []
        found = next((line.split()[0] for line in lines if line.endswith(f" {reference}")), "")
        if found:
            return found
    return UNKNOWN_COMMIT
