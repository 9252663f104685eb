"""Protobuf messages of the RPCs and of the stored records, and their mirror in dataclasses."""
