"""Tests of the coordinator over gRPC; a package, so that they share their conftest's helpers."""
