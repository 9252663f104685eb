"""Data that survives a restart and a resize: an exact order, an immutable dataset, and the proof of what was read."""

from evertrain.trainer.data.accumulation import Accumulation, BatchNotKept
from evertrain.trainer.data.bad_samples import BadSamples
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
from evertrain.trainer.data.quarantine import Quarantined
from evertrain.trainer.data.sampler import ElasticSampler, GlobalOrder, OrderChanged, Plan, StepBatches, read_plan
from evertrain.trainer.data.seeding import SampleRef, SeededDataset, sample_seed, seeded
from evertrain.trainer.data.shards import ElasticShards, ShardOrder, ShardPlan, count_shards, read_shard_plan
from evertrain.trainer.data.windows import ByteWindows

__all__ = [
    "Accumulation",
    "BadLog",
    "BadManifest",
    "BadSamples",
    "BatchNotKept",
    "ByteWindows",
    "ConsumptionLog",
    "ConsumptionReport",
    "DataFile",
    "DatasetChanged",
    "DatasetEmpty",
    "DatasetError",
    "DatasetManifest",
    "ElasticSampler",
    "ElasticShards",
    "GlobalOrder",
    "KeyedPermutation",
    "OrderChanged",
    "Plan",
    "Quarantined",
    "SampleRef",
    "SeededDataset",
    "ShardOrder",
    "ShardPlan",
    "StepBatches",
    "StepFinding",
    "audit",
    "build_manifest",
    "count_shards",
    "read_plan",
    "read_shard_plan",
    "sample_seed",
    "seeded",
]
