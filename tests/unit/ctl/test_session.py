"""How a command runs to its end, and how Ctrl-C ends it."""

from __future__ import annotations

import signal
import subprocess
import sys

SCRIPT = """
import asyncio, signal, threading
from evertrain.ctl.session import run

threading.Thread(target=threading.Event().wait, daemon=True).start()
# Now the kernel gives the signal to the other thread, as it may do when a library has threads of its own.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


async def wait():
    print("waits", flush=True)
    await asyncio.Event().wait()


try:
    run(wait())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_that_another_thread_gets_ends_the_command_at_once() -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert out == "interrupted\n"
