"""The process in which a source is read: requests in, readings out, one JSON line each. ``python -m`` this module.

It may be killed at any moment, and ends when its standard input does. Judges nothing.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Reader: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
SOURCES: Final = ("gpu", "host", "kernel", "network", "storage")


def reader(source: str) -> Reader:
    """What reads ``source``. Each is imported in its own process only."""
    if source == "gpu":
        from evertrain.agent.health import probe_gpu

        return probe_gpu.Gpus().read
    if source == "network":
        from evertrain.agent.health import probe_network

        return probe_network.read
    if source == "host":
        from evertrain.agent.health import probe_host

        return probe_host.read
    from evertrain.agent.health import probe_storage

    return probe_storage.read


def main() -> None:
    """Entry point: the source is the first argument."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    source = sys.argv[1]
    assert source in SOURCES, f"one of {', '.join(SOURCES)}"
    if source == "kernel":
        from evertrain.agent.health import probe_kernel

        probe_kernel.follow(json.loads(sys.stdin.readline()))
        return
    read = reader(source)
    for line in sys.stdin:
        try:
            answer: Mapping[str, Any] = {"reading": read(json.loads(line))}
        except Exception as err:  # a source in a form nobody thought of must not end in silence
            answer = {"error": f"{type(err).__name__}: {err}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
