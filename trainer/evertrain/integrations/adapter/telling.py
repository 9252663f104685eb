"""Tells the launcher of sealed checkpoints, where there is a launcher. Not for the script's steps: nobody sees them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import Final, Self

from evertrain.contract import environ
from evertrain.contract.beacon import CheckpointCommitted, Hello
from evertrain.integrations.adapter import seal
from evertrain.integrations.adapter.shelf import Sealed
from evertrain.trainer.reporter import Reporter
from evertrain.trainer.settings import Settings

FLUSH_S: Final = 2.0


class Teller:
    """The adapter's connection to the launcher; without one it does nothing."""

    def __init__(self, env: Mapping[str, str]) -> None:
        settings = Settings.from_environ(env)
        self._world_size = settings.world_size
        hello = Hello(rank=settings.rank, pid=os.getpid(), generation=settings.generation)
        self._reporter = Reporter(env.get(environ.BEACON, ""), hello)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reporter.flush(within_s=FLUSH_S)
        self._reporter.close()

    def tell(self, sealed: Iterable[Sealed]) -> None:
        """Report each as committed; its manifest is its seal."""
        for one in sealed:
            self._reporter.report(
                CheckpointCommitted(
                    step=one.seal.step or 0,
                    path=str(one.path.absolute()),
                    digest=hashlib.sha256(seal.encode(one.seal)).hexdigest(),
                    bytes_total=one.seal.bytes,
                    world_size=self._world_size,
                    save_s=max(0.0, time.time() - one.seal.saved_ns / 1e9),
                    reshardable=False,  # only the script knows
                )
            )
