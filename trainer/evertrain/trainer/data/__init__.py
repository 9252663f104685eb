"""Data that survives a restart and a resize: an exact order, an immutable dataset, and the proof of what was read."""

from evertrain.trainer.data.consumption import BadLog, ConsumptionLog, ConsumptionReport, StepFinding, audit
from evertrain.trainer.data.dataset_manifest import (
    BadManifest,
    DataFile,
    DatasetChanged,
    DatasetEmpty,
    DatasetError,
    DatasetManifest,
    build_manifest,
)
from evertrain.trainer.data.permutation import KeyedPermutation
from evertrain.trainer.data.sampler import ElasticSampler, GlobalOrder, OrderChanged, Plan, StepBatches, read_plan
from evertrain.trainer.data.windows import ByteWindows

__all__ = [
    "BadLog",
    "BadManifest",
    "ByteWindows",
    "ConsumptionLog",
    "ConsumptionReport",
    "DataFile",
    "DatasetChanged",
    "DatasetEmpty",
    "DatasetError",
    "DatasetManifest",
    "ElasticSampler",
    "GlobalOrder",
    "KeyedPermutation",
    "OrderChanged",
    "Plan",
    "StepBatches",
    "StepFinding",
    "audit",
    "build_manifest",
    "read_plan",
]
