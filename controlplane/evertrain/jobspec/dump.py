"""A resolved specification as YAML that load reads back to the same. For people; the wire form is in contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from evertrain.contract.adapter import CheckpointAdapter
from evertrain.contract.jobspec import JobSpec
from evertrain.contract.wire import to_dict
from evertrain.jobspec.secrets import looks_secret
from evertrain.jobspec.units import duration_text, size_text


def dump(spec: JobSpec, *, hide_secrets: bool = False) -> str:
    """Every field of ``spec``, defaults included. With ``hide_secrets`` values that look secret are left out."""
    fields: dict[str, Any] = to_dict(spec)
    fields["logs"]["bytes_max"] = size_text(spec.logs.bytes_max)
    fields["stop_grace"] = duration_text(fields.pop("stop_grace_s"))
    fields["prepare_timeout"] = duration_text(fields.pop("prepare_timeout_s"))
    fields["checkpoint"] = _checkpoint(spec)
    microbatches = fields.pop("reproducible_microbatches")
    fields["reproducible"] = {"microbatches": microbatches} if microbatches else False
    del fields["drill_steps"]
    if hide_secrets:
        fields["env"] = hidden(spec.env)
    kept = {name: value for name, value in fields.items() if value not in ("", [], {})}
    kept["checkpoint"] = {name: value for name, value in kept["checkpoint"].items() if value not in ("", {})}
    return yaml.dump(kept, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=100)


def _checkpoint(spec: JobSpec) -> dict[str, Any]:
    wanted = spec.checkpoint
    return {
        "dir": wanted.dir,
        "every_steps": "auto" if wanted.auto else wanted.every_steps,
        "every": duration_text(wanted.every_s),
        "keep_last": wanted.keep,
        "keep_every_steps": wanted.keep_every_steps,
        "keep_proven": wanted.keep_proven,
        "exposed_max": duration_text(wanted.exposed_max_s),
        "reshard": not wanted.fixed_size,
        "memory_every_steps": "auto" if wanted.memory_auto else wanted.memory_every_steps,
        "peer_copies": wanted.peer_copies,
        "adapter": {} if wanted.adapter is None else _adapter(wanted.adapter),
        "drill": {
            "every": duration_text(wanted.drill.every_s),
            "steps": wanted.drill.steps,
            "tolerance": wanted.drill.tolerance,
            "nodes": wanted.drill.nodes or "auto",
        },
    }


def _adapter(adapter: CheckpointAdapter) -> dict[str, Any]:
    fields: dict[str, Any] = to_dict(adapter)
    fields["settle"] = duration_text(fields.pop("settle_s"))
    return {name: value for name, value in fields.items() if value not in ("", [])}


def hidden(env: Mapping[str, str]) -> dict[str, str]:
    """``env`` with a note in place of each value that looks like a secret."""
    return {name: "(hidden)" if looks_secret(name, value) else value for name, value in env.items()}
