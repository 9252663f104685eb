"""What digests cost beside the write, and how fast a verification reads beside dd, as JSON lines.

One rank's file of 1 GiB, on tmpfs and on disk, written and synced by the same
code as a save. Ours and the peer take turns, and before each turn the file is
dropped from the cache, so that both read it from the disk (tmpfs has nowhere to
read from: there it is memory against memory). A hypervisor's own cache cannot
be dropped; it serves both alike. dd copies to /dev/null in pieces of 1 MiB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.figures import Goal, Sample, compare
from evertrain.checkpoint.digests import BLAKE3, SHA256, XXH3_128
from evertrain.checkpoint.manifest import (
    BLOCK_BYTES,
    MANIFEST_NAME,
    CheckpointManifest,
    Entry,
    RankRecord,
    data_name,
    encode,
)
from evertrain.checkpoint.storage.posix import PosixStorage
from evertrain.checkpoint.verify import verify
from evertrain.checkpoint.writing import Region, digests_of, write_shard

TENSORS: Final = 128
TENSOR_BYTES: Final = 8 << 20
REPEAT: Final = 9
ROOMY: Final = "/dev/shm"  # noqa: S108
DIGEST_GOAL: Final = 0.10
READ_GOAL: Final = 0.90
"""Of dd's bandwidth."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=REPEAT)
    parser.add_argument("--disk", default="/var/tmp", help="a folder on the disk to measure")  # noqa: S108
    asked = parser.parse_args()
    data = memoryview(os.urandom(TENSOR_BYTES) * TENSORS)
    for name, folder in (("tmpfs", ROOMY), ("disk", asked.disk)):
        with tempfile.TemporaryDirectory(dir=folder, prefix="evertrain-bench-") as root:
            measure(name, Path(root), data, asked.repeat)


def measure(place: str, root: Path, data: memoryview, repeat: int) -> None:
    """Print all figures of one place."""
    storage = PosixStorage(root)
    conditions = {
        "place": place,
        "bytes": data.nbytes,
        "tensors": TENSORS,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    timed: dict[str, list[float]] = {"write": [], XXH3_128: [], BLAKE3: [], SHA256: []}
    for _ in range(repeat):
        timed["write"].append(seconds(lambda: storage.write("written", pieces(data))))
        for name in (XXH3_128, BLAKE3, SHA256):
            timed[name].append(seconds(lambda name=name: digests_of(data, hash_name=name)))  # type: ignore[misc]
    (root / "written").unlink()
    written = ("write and fsync", Sample(values=timed["write"]))
    for name in (XXH3_128, BLAKE3, SHA256):
        sample = Sample(values=timed[name])
        goal = Goal(DIGEST_GOAL if name == XXH3_128 else 1, of_peer=True)  # the others are chosen for other reasons
        print(compare(f"digest {name}", ours=sample, peer=written, conditions=conditions, goal=goal).line(), flush=True)
    folder = committed(storage, data)
    verified: list[float] = []
    copied: list[float] = []
    for _ in range(repeat):
        for spent, work in ((copied, copy), (verified, check)):
            drop(root / folder / data_name(0))
            spent.append(seconds(lambda work=work: work(root, folder)))  # type: ignore[misc]
    goal = Goal(round(1 / READ_GOAL, 3), of_peer=True)
    peer = ("dd", Sample(values=copied))
    print(
        compare("verify", ours=Sample(values=verified), peer=peer, conditions=conditions, goal=goal).line(), flush=True
    )


def committed(storage: PosixStorage, data: memoryview) -> str:
    """A checkpoint that holds ``data`` as tensors; its folder."""
    folder = "step-000000001-g1"
    regions = [
        region(number, data[at : at + TENSOR_BYTES]) for number, at in enumerate(range(0, len(data), TENSOR_BYTES))
    ]
    draft = RankRecord(job="", generation=1, step=1, rank=0, hash=XXH3_128, bytes=0, entries=(), values={})
    shard = write_shard(storage, folder, draft, regions)
    manifest = CheckpointManifest(
        job="", generation=1, step=1, tokens=0, world_size=1, shards=(shard,), torch_version="none"
    )
    storage.create(f"{folder}/{MANIFEST_NAME}", encode(manifest))
    return folder


def region(number: int, data: memoryview) -> Region:
    """A tensor of bytes."""
    shape = (len(data),)
    entry = Entry(
        name=f"model/{number}",
        dtype="uint8",
        shape=shape,
        offsets=(0,),
        sizes=shape,
        start=0,
        bytes=len(data),
        digests=digests_of(data, hash_name=XXH3_128),
    )
    return Region(entry=entry, data=data)


def pieces(data: memoryview) -> Iterator[memoryview]:
    """As a save hands them to the storage."""
    for at in range(0, len(data), BLOCK_BYTES):
        yield data[at : at + BLOCK_BYTES]


def check(root: Path, folder: str) -> None:
    """Verify as an agent does."""
    verify(PosixStorage(root, fresh=True), folder)


def copy(root: Path, folder: str) -> None:
    """Read the same bytes with dd."""
    dd = shutil.which("dd")
    assert dd is not None, "coreutils are everywhere"
    line = [dd, f"if={root / folder / data_name(0)}", "of=/dev/null", "bs=1M", "status=none"]
    subprocess.run(line, check=True, timeout=600)


def drop(path: Path) -> None:
    """Take a file out of this system's cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def seconds(work: Callable[[], object]) -> float:
    """How long it took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
