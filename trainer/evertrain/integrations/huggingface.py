"""Hugging Face's ``Trainer``, resumable to the last bit: verified checkpoints, its own state, the same samples.

Usage, in place of ``hf.train()``::

    from evertrain import trainer
    from evertrain.integrations import huggingface

    with trainer.session(checkpoint_dir="checkpoints") as job:
        hf = transformers.Trainer(model=model, args=args, train_dataset=dataset)
        huggingface.train(hf, job)

``save_steps`` and its kin then say when our checkpoint is made; the Trainer
writes none of its own. Not for FSDP or DeepSpeed inside the Trainer, which
make their optimizer too late to be restored here.

Errors::

    NotExact (ValueError)    the Trainer is set up in a way that could not be resumed exactly; the text says what to set
"""

from __future__ import annotations

import copy
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from evertrain.integrations.not_exact import require_exact
from evertrain.integrations.resumed_rng import ResumedRng
from evertrain.trainer import Session
from evertrain.trainer.parts import Stateful
from evertrain.trainer.session import HasDigest
from evertrain.trainer.state import JobState

TRAINER_STATE: Final = "trainer_state.json"
"""What the Trainer reads its own state from when it resumes."""
RANK_OWN: Final = ("is_local_process_zero", "is_world_process_zero")


def train(
    hf: Trainer,
    job: Session,
    *,
    extra: Mapping[str, Stateful] | None = None,
    config: Mapping[str, Any] | None = None,
    dataset: HasDigest | None = None,
) -> Any:
    """Train from the newest verified checkpoint to the end; what ``hf.train()`` returns. A collective.

    ``extra``, ``config`` and ``dataset`` are those of ``job.state``. Raises
    :class:`NotExact`, and what ``JobState.restore`` raises.
    """
    require_resumable(hf)
    part, scheduler = _TrainerPart(hf), _LateScheduler()
    optimizer = hf.create_optimizer()
    state = job.state(
        model=hf.model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=getattr(hf.accelerator, "scaler", None),
        extra={"trainer": part, **(extra or {})},
        config=config,
        dataset=dataset,
    )
    resumed = state.restore() > 0
    boundary = _Boundary(job, state, hf, scheduler, groups=_options(optimizer) if resumed else [])
    hf.add_callback(boundary)
    try:
        if not resumed:
            return hf.train()
        with _only_its_own_state(hf, part.restored) as folder:
            return hf.train(resume_from_checkpoint=folder)
    finally:
        hf.remove_callback(boundary)


def require_resumable(hf: Trainer) -> None:
    """Raise :class:`NotExact` for settings under which resuming changes the run."""
    args = hf.args
    sampling = str(getattr(args, "train_sampling_strategy", ""))
    wrong = {
        "fsdp or deepspeed: use evertrain.trainer in a loop of your own": hf.is_fsdp_enabled or hf.is_deepspeed_enabled,
        "load_best_model_at_end: it loads files that the Trainer saved itself; set it to False": (
            args.load_best_model_at_end
        ),
        "save_strategy='best': the newest state is what a resume needs; use 'steps'": (
            str(getattr(args.save_strategy, "value", args.save_strategy)) == "best"
        ),
        "ignore_data_skip: a resumed run would see samples twice; set it to False": args.ignore_data_skip,
        "auto_find_batch_size: the batch must stay what it is; set it to False": args.auto_find_batch_size,
        "sampling by length: its order cannot be repeated; use 'random'": "length" in sampling,
        "use_seedable_sampler=False: the order must follow from the seed; set it to True in accelerator_config": (
            not hf.accelerator.use_seedable_sampler
        ),
    }
    require_exact("the Trainer", wrong)


class _TrainerPart:
    """The Trainer's own state: steps, epochs, logs, best metric, its callbacks'."""

    def __init__(self, hf: Trainer) -> None:
        self._hf = hf
        self.restored: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        hf = self._hf
        exporting = [each for each in [*hf.callback_handler.callbacks, hf.control] if isinstance(each, ExportableState)]
        exported = TrainerState(stateful_callbacks=exporting).stateful_callbacks
        values = dataclasses.asdict(dataclasses.replace(hf.state, stateful_callbacks=exported))
        return {
            "global_batch": _global_batch(hf.args),
            "values": {name: value for name, value in values.items() if name not in RANK_OWN},
        }

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        if (batch := _global_batch(self._hf.args)) != state["global_batch"]:
            raise ValueError(
                f"a step was {state['global_batch']} samples and would now be {batch}: change "
                "gradient_accumulation_steps or per_device_train_batch_size so that it stays the same"
            )
        self.restored = dict(state["values"])


class _LateScheduler:
    """The learning rate's schedule, which the Trainer makes only after the restore."""

    def __init__(self) -> None:
        self._real: Any = None
        self._restored: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = self._real.state_dict() if self._real is not None else {}
        return found

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._restored = state

    def attach(self, real: Any) -> None:
        """It was made."""
        self._real = real
        if self._restored:
            real.load_state_dict(self._restored)
            self._restored = None


class _Boundary(TrainerCallback):
    """Tells of steps and saves between them.

    A step's boundary is where the next one begins: by then its log lines and
    its evaluation are over, and they are part of the state.
    """

    def __init__(
        self, job: Session, state: JobState, hf: Trainer, scheduler: _LateScheduler, *, groups: list[dict[str, Any]]
    ) -> None:
        self._job, self._state, self._hf, self._scheduler, self._groups = job, state, hf, scheduler, groups
        self._rng = ResumedRng()
        if groups:
            self._rng.keep()
        self._untold_step = 0
        self._save = False
        self._loss: float | None = None
        self._norm: float | None = None
        """Of the step that is told next, if it was logged."""
        self._logged_step = 0
        self._comparable = False
        """The loss is of the step that is told next alone."""
        self._tokens_told = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, _: TrainerControl, **made: Any) -> None:
        self._scheduler.attach(made["lr_scheduler"])
        # Whoever makes a schedule sets the optimizer's learning rates to those of its beginning.
        for group, options in zip(made["optimizer"].param_groups, self._groups, strict=False):
            group.update(options)
        self._tokens_told, self._logged_step = state.num_input_tokens_seen, state.global_step

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, _: TrainerControl, **__: Any) -> None:
        self._rng.put_back()
        self._tell(state)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> Any:
        self._untold_step = state.global_step
        return self._take_wish(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> Any:
        return self._take_wish(control)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, _: TrainerControl, **__: Any) -> None:
        self._tell(state)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, _: TrainerControl, logs: Any = None, **__: Any
    ) -> None:
        """Keep rank 0's line on all ranks: theirs differ in how long things took, and the state must be alike."""
        peers = self._state.peers
        mine = json.loads(json.dumps(state.log_history[-1], default=float)) if peers.rank == 0 else None
        state.log_history[-1] = peers.share(mine)
        if logs and "loss" in logs:
            self._loss, self._norm = logs["loss"], logs.get("grad_norm")
            self._comparable = state.global_step == self._logged_step + 1  # else it is a mean over several steps
            self._logged_step = state.global_step

    def _take_wish(self, control: TrainerControl) -> TrainerControl:
        """A save that the Trainer wants becomes ours."""
        self._save = self._save or control.should_save
        control.should_save = False
        return control

    def _tell(self, state: TrainerState) -> None:
        if not self._untold_step:
            return
        step, self._untold_step = self._untold_step, 0
        save, self._save = self._save, False
        tokens, self._tokens_told = int(state.num_input_tokens_seen) - self._tokens_told, state.num_input_tokens_seen
        self._job.step_done(
            step, loss=self._loss, grad_norm=self._norm, comparable=self._comparable, tokens=tokens, save=save
        )
        self._norm, self._comparable = None, False


@contextmanager
def _only_its_own_state(hf: Trainer, values: Mapping[str, Any]) -> Iterator[str]:
    """A folder for the Trainer to resume from with nothing but its own state in it; the rest is restored already."""
    with tempfile.TemporaryDirectory(prefix="evertrain-trainer-") as folder:
        TrainerState(**values).save_to_json(str(Path(folder, TRAINER_STATE)))
        hf._load_from_checkpoint = lambda *_, **__: None
        try:
            yield folder
        finally:
            del hf._load_from_checkpoint


def _options(optimizer: Any) -> list[dict[str, Any]]:
    return [
        copy.deepcopy({key: value for key, value in group.items() if key != "params"})
        for group in optimizer.param_groups
    ]


def _global_batch(args: TrainingArguments) -> int:
    return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)
