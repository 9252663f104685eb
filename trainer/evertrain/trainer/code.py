"""Which code this is: the commit of the script's repository, for the record. Not for keeping copies of code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

GIT_S: Final = 5.0
CHANGED: Final = "+changes"
"""After a commit whose files were changed without a new one."""


def commit_of_script() -> str:
    """The commit of the repository in which the main script lies; empty where that cannot be told. Never raises."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = Path(script).resolve().parent if script else Path.cwd()
    try:
        commit = _git(folder, "rev-parse", "--verify", "HEAD").strip()
        return commit + (CHANGED if _git(folder, "status", "--porcelain", "--untracked-files=no").strip() else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=GIT_S, check=True).stdout
