"""The environment variables a worker gets, besides torchrun's own.

torchrun's contract (``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, ``LOCAL_WORLD_SIZE``,
``GROUP_RANK``, ``GROUP_WORLD_SIZE``, ``ROLE_RANK``, ``ROLE_NAME``, ``ROLE_WORLD_SIZE``,
``MASTER_ADDR``, ``MASTER_PORT``, ``TORCHELASTIC_RESTART_COUNT``,
``TORCHELASTIC_MAX_RESTARTS``, ``TORCHELASTIC_RUN_ID``, ``TORCHELASTIC_USE_AGENT_STORE``,
``TORCHELASTIC_ERROR_FILE``, ``TORCH_NCCL_ASYNC_ERROR_HANDLING``, ``OMP_NUM_THREADS``)
is documented at https://docs.pytorch.org/docs/stable/elastic/run.html and set
by the launcher in full.
"""

from __future__ import annotations

from typing import Final

BEACON: Final = "EVERTRAIN_BEACON"
"""Path of the launcher's unix socket that the trainer library reports to."""
PROGRESS: Final = "EVERTRAIN_PROGRESS"
"""Path of the file with a progress slot for each local rank; absent when there is none, see progress_slot.py."""
JOB: Final = "EVERTRAIN_JOB"
"""Name of the job."""
JOB_ID: Final = "EVERTRAIN_JOB_ID"
"""Id of the job, unique for ever; names the job's folder of checkpoints."""
GENERATION: Final = "EVERTRAIN_GENERATION"
"""Generation of the gang, a positive integer."""
CHECKPOINT_DIR: Final = "EVERTRAIN_CHECKPOINT_DIR"
"""Directory that holds the checkpoints of jobs, each in a folder named by its id; absent when the job declared none."""
CHECKPOINT_EVERY: Final = "EVERTRAIN_CHECKPOINT_EVERY_STEPS"
"""Save after every so many steps, or ``auto``: as often as the cost of a save and the job's failures make best;
absent when only the script decides."""
CHECKPOINT_EVERY_S: Final = "EVERTRAIN_CHECKPOINT_EVERY_S"
"""Save when so many seconds have passed since the last save; absent when time alone leads to none."""
MTBF_S: Final = "EVERTRAIN_MTBF_S"
"""Seconds that a gang of this size runs on average before it breaks; absent when nothing is known."""
COPY_EVERY: Final = "EVERTRAIN_COPY_EVERY_STEPS"
"""Copy the state in memory after every so many steps, or ``auto``; absent: only for checkpoints."""
COPIES_TO: Final = "EVERTRAIN_COPIES_TO"
"""Group rank of the node that keeps copies of this one's memory; absent when none does."""
CHECKPOINT_KEEP: Final = "EVERTRAIN_CHECKPOINT_KEEP"
"""How many committed checkpoints to keep, for a library that removes old ones itself."""
COPIES: Final = "EVERTRAIN_COPIES"
"""Folder in shared memory for copies of the state: it stays when workers die, and goes with the launcher."""
TRAIL_STEPS: Final = "EVERTRAIN_TRAIL_STEPS"
"""Of so many steps after each checkpoint loss and gradient norm are told; absent: of none."""
DRILL_STEPS: Final = "EVERTRAIN_DRILL_STEPS"
"""This is a restore drill: restore the checkpoint ordered, save nothing, train so many steps, leave; absent: it isn't.
A script may look at it to leave out what a drill must not repeat, such as uploads of metrics."""
RESTORE: Final = "EVERTRAIN_RESTORE"
"""Directory of the checkpoint to restore from; absent on a fresh start."""
RESTORE_DIGEST: Final = "EVERTRAIN_RESTORE_DIGEST"
"""Digest of that checkpoint's manifest as the coordinator registered it."""
RESTORE_MEMORY: Final = "EVERTRAIN_RESTORE_MEMORY_SINCE"
"""Copies in memory that are newer than that checkpoint may be taken instead, if they are of this generation or a later
one; absent when none may."""
REPRODUCIBLE: Final = "EVERTRAIN_REPRODUCIBLE"
"""How many logical microbatches each step has in reproducible mode; absent in any other."""
SAVER_MODULE: Final = "evertrain.checkpoint.saver"
"""``python -m`` of it is a worker's saver, which finishes what it was given when its worker is dead."""
CHECKPOINT_MODULE: Final = "evertrain.checkpoint"
"""``python -m`` of it looks at a checkpoint from outside."""
ADAPTER_MODULE: Final = "evertrain.integrations.adapter"
"""``python -m`` of it looks after checkpoints that a script writes by itself."""
NODE: Final = "EVERTRAIN_NODE"
"""Name of the node."""
OWNER: Final = "EVERTRAIN_OWNER"
"""Mark on every process of a job on a node, by which the agent finds orphans."""
