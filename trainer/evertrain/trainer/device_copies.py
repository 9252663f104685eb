"""Copies out of a device's memory into pinned shared memory, on streams of their own. Not for the host's (copies.py).

What is taken for granted of CUDA and torch is in docs/assumptions.md, and
tests/integration/trainer/test_device_copies.py tries it where there is a GPU.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
from collections.abc import Sequence
from typing import Any, Final

import torch

PORTABLE: Final = 1
"""``cudaHostRegisterPortable``: pinned for every device of this process, as torch itself pins shared memory."""

Pairs = Sequence[tuple[torch.Tensor, torch.Tensor]]
"""Tensors, and where they are copied to."""

log = logging.getLogger("evertrain.trainer")


class DeviceCopying:
    """The copies of one moment. Its caller holds all tensors until :meth:`finish` has returned."""

    def __init__(self, now: Pairs, later: Pairs) -> None:
        """Whatever is queued on the devices afterwards comes after the copies of ``now``."""
        self._events: list[tuple[torch.device, Any]] = []
        for device in sorted({source.device for source, _ in (*now, *later)}, key=str):
            # A copy runs on the current stream of the *source's* device, whichever device is the current one.
            with torch.cuda.device(device):
                self._events.append((device, self._start(_of(now, device), _of(later, device))))

    def _start(self, now: Pairs, later: Pairs) -> Any:
        training: Any = torch.cuda.current_stream()
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        stream.wait_stream(training)
        with torch.cuda.stream(stream):
            for source, target in now:
                target.copy_(source, non_blocking=True)
            training.wait_event(stream.record_event())
            for source, target in later:
                target.copy_(source, non_blocking=True)
            return stream.record_event()

    def hold(self) -> None:
        """Whatever is queued on the devices from now on comes after the copies; the host does not wait."""
        for device, event in self._events:
            torch.cuda.current_stream(device).wait_event(event)

    def finish(self) -> None:
        """Wait until the copies are there. Raises RuntimeError if a device broke."""
        for _, event in self._events:
            event.synchronize()
        self._events = []


def _of(pairs: Pairs, device: torch.device) -> Pairs:
    return [pair for pair in pairs if pair[0].device == device]


class Pinned:
    """Shared memory that devices write to directly, if they can: without it copies are slower, and right."""

    def __init__(self, memory: mmap.mmap, size: int) -> None:
        self._memory, self._start = memory, 0
        if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        error = int(_runtime().cudaHostRegister(start, size, PORTABLE))
        if error:
            _forget_error()
            log.warning("shared memory is not pinned (CUDA error %d): copies from the device are slower", error)
        else:
            self._start = start

    def release(self) -> None:
        """Unpin it, which has to come before it is unmapped: else its pages stay for as long as this process lives."""
        start, self._start = self._start, 0
        if start and int(_runtime().cudaHostUnregister(start)):
            _forget_error()


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _forget_error() -> None:
    """Take the error that CUDA holds for whoever asks next: torch asks after each of its own kernels."""
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError:
        log.debug("CUDA's last error was taken")
