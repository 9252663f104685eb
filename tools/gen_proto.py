"""Generate the protobuf stubs in place, or with ``--check`` fail when they are not up to date.

grpcio-tools 1.71.2 on purpose: its stubs (protobuf 5.29) run on every
protobuf runtime from 5.29 to 7, newer ones only on their own and later.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent / "proto"
SERVICES = ("agent.proto", "operator.proto")


def generate(out: Path) -> None:
    """Write all stubs below ``out``. Exits with protoc's message when a file is wrong."""
    protos = sorted(ROOT.rglob("*.proto"))
    include = Path(grpc_tools.__file__).parent / "_proto"
    base = ["protoc", f"-I{ROOT}", f"-I{include}", f"--python_out={out}", f"--pyi_out={out}"]
    if code := protoc.main([*base, *map(str, protos)]):
        sys.exit(code)
    services = [proto for proto in protos if proto.name in SERVICES]
    if code := protoc.main([*base[:3], f"--grpc_python_out={out}", *map(str, services)]):
        sys.exit(code)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    if not parser.parse_args().check:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = {path.relative_to(scratch): path.read_bytes() for path in Path(scratch).rglob("*_pb2*")}
    stubs = [path for path in ROOT.rglob("*_pb2*.py*") if "__pycache__" not in path.parts]
    committed = {path.relative_to(ROOT): path.read_bytes() for path in stubs}
    stale = sorted(str(path) for path in fresh.keys() | committed.keys() if fresh.get(path) != committed.get(path))
    for path in stale:
        print(f"proto/{path}: error: not what its .proto generates, run `make proto`")
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
