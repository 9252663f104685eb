"""A stand-in for an agent that ``ctl up`` starts: it registers by a file and leaves a launcher that outlives it."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

LAUNCHER = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


def main() -> None:
    """Register, then wait for SIGTERM. A node named in $BROKEN ends at once; one in $MUTE never registers."""
    parser = argparse.ArgumentParser()
    for name in ("--coordinator", "--node", "--state-dir", "--slots", "--log-format", "--health"):
        parser.add_argument(name, required=True)
    parser.add_argument("--nodes-dir", type=Path, required=True)
    given = parser.parse_args()
    if os.environ.get("BROKEN") == given.node:
        print("cannot listen on the probe port", flush=True)
        sys.exit(3)
    # What a real agent gives a launcher: little of its own environment, an import path in its own folder.
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        env={"PYTHONPATH": f"{given.state_dir}/pylib"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert launcher.stdout is not None
    launcher.stdout.readline()
    if os.environ.get("MUTE") != given.node:
        (given.nodes_dir / given.node).touch()
    signal.sigwait({signal.SIGTERM})
    os._exit(0)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main()
