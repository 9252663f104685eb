"""Where this worker stands: its rank and the world's size. Never imports torch; asks it if the script did."""

from __future__ import annotations

import os
import sys
from typing import Any


def process_groups() -> Any:
    """``torch.distributed`` if the script has made a process group, else None."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def rank_and_world_size() -> tuple[int, int]:
    """From the process group if there is one, else from torchrun's variables, else alone."""
    dist = process_groups()
    if dist is not None:
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
