"""A process that outlives the demo by a moment, to clean up whatever ends it, SIGKILL included.

``python -m evertrain.chaos.demo.guardian FOLDER`` waits until its standard
input closes, which the kernel does when the demo is gone, then takes the
cluster in FOLDER down if it still stands.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

from evertrain.ctl.local import down, state


def watch_over(folder: Path) -> subprocess.Popen[bytes]:
    """Start a guardian for the cluster in ``folder``; it acts when this process is gone."""
    return subprocess.Popen(
        [sys.executable, "-m", "evertrain.chaos.demo.guardian", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def dismiss(guardian: subprocess.Popen[bytes]) -> None:
    """Close the guardian's input and wait until it has looked that nothing is left."""
    assert guardian.stdin is not None, "started with a pipe"
    guardian.stdin.close()
    guardian.wait(timeout=60)


def main() -> None:
    """Wait for the end of the demo, then leave nothing behind."""
    folder = Path(sys.argv[1])
    while os.read(0, 4096):
        pass
    if folder.exists():
        with state.locked(folder):
            asyncio.run(down.stop(folder, lambda _text: None))
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
