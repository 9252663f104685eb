"""A loop with Hugging Face's Accelerate, resumable to the last bit: verified checkpoints, the same batches.

Usage::

    from evertrain import trainer
    from evertrain.integrations.accelerate import Run

    settings = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = Accelerator(dataloader_config=settings)
    set_seed(7)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    with trainer.session(checkpoint_dir="checkpoints") as job:
        run = Run(accelerator, job, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
        run.restore()
        for batch in run.batches(epochs=3):
            with accelerator.accumulate(model):
                ...
            run.step_done(loss=loss)

Not for ``accelerator.save_state``, which this replaces.

Errors::

    NotExact (ValueError)    the Accelerator or its loader could not be resumed exactly; the text says what to set
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, SupportsFloat

from accelerate import Accelerator, skip_first_batches

from evertrain.integrations.not_exact import require_exact
from evertrain.integrations.resumed_rng import ResumedRng
from evertrain.trainer import Session
from evertrain.trainer.parts import Stateful
from evertrain.trainer.session import HasDigest

OTHERS: Final = ("FSDP", "DEEPSPEED", "MEGATRON_LM")
"""Ways to distribute that shard a state of which ``state_dict`` gives a part, or none."""


class Run:
    """One training run over one prepared data loader: where it stands, and how it is resumed there."""

    def __init__(
        self,
        accelerator: Accelerator,
        job: Session,
        *,
        model: Any,
        optimizer: Any,
        loader: Any,
        scheduler: Any = None,
        extra: Mapping[str, Stateful] | None = None,
        config: Mapping[str, Any] | None = None,
        dataset: HasDigest | None = None,
    ) -> None:
        """``loader`` and the parts are as ``accelerator.prepare`` returned them; the rest is as for ``job.state``."""
        require_exact(
            "Accelerate",
            {
                "use_seedable_sampler=False: the order must follow from the seed; give Accelerator a "
                "DataLoaderConfiguration(use_seedable_sampler=True)": not accelerator.use_seedable_sampler,
                "use_stateful_dataloader=True: batches are skipped by their number; set it to False": (
                    accelerator.use_stateful_dataloader
                ),
                f"{accelerator.distributed_type.value}, which keeps its state in a form of its own: use "
                "evertrain.trainer with FSDP2 in a loop of your own": str(accelerator.distributed_type.value) in OTHERS,
                "a loader that was not prepared: pass it to accelerator.prepare()": not hasattr(loader, "set_epoch"),
            },
        )
        self.step = 0
        """Optimizer steps that are complete."""
        self._accelerator, self._job, self._loader = accelerator, job, loader
        self._position = _Position(accelerator, loader, scheduled=scheduler is not None)
        self._rng = ResumedRng()
        self._state = job.state(
            model=model,
            optimizer=getattr(optimizer, "optimizer", optimizer),
            scheduler=getattr(scheduler, "scheduler", scheduler),
            scaler=accelerator.scaler,
            extra={"position": self._position, **(extra or {})},
            config=config,
            dataset=dataset,
        )

    def restore(self) -> int:
        """Restore the newest verified checkpoint and return its step, or 0 for a fresh start. A collective."""
        self.step = self._state.restore()
        if self.step:
            self._rng.keep()
        return self.step

    def batches(self, epochs: int) -> Iterator[Any]:
        """The batches that are left of ``epochs`` passes. Those of before the restore are not read."""
        position = self._position
        while position.epoch < epochs:
            self._loader.set_epoch(position.epoch)
            rest = skip_first_batches(self._loader, position.batches) if position.batches else self._loader
            for batch in rest:
                self._rng.put_back()
                position.batches += 1
                yield batch
            self._rng.put_back()  # saved between two passes: the next one draws as it would have
            position.epoch, position.batches = position.epoch + 1, 0

    def step_done(
        self,
        *,
        loss: SupportsFloat | None = None,
        grad_norm: SupportsFloat | None = None,
        tokens: int = 0,
        save: bool = False,
    ) -> None:
        """Tell that a batch was trained on; the last of its accumulation makes a step, at which a save may happen.

        Called by all ranks for every batch. The rest is as for ``job.step_done``.
        """
        if self._accelerator.sync_gradients:
            self.step += 1
            self._job.step_done(self.step, loss=loss, grad_norm=grad_norm, tokens=tokens, save=save)


class _Position:
    """Which batch comes next, in the order that follows from the seed."""

    def __init__(self, accelerator: Accelerator, loader: Any, *, scheduled: bool) -> None:
        self.epoch = 0
        self.batches = 0
        """Of this epoch and this rank, those that were handed out."""
        ranks = int(accelerator.num_processes)
        self._ranks = ranks
        self._fixed = {
            "a step's samples": int(loader.total_batch_size) * int(accelerator.gradient_accumulation_steps),
            "the sampler's seed": getattr(loader.get_sampler(), "initial_seed", None),
        }
        if scheduled and accelerator.step_scheduler_with_optimizer and not accelerator.split_batches:
            # Accelerate steps such a schedule once for each rank, so it means another thing for more of them.
            self._fixed["the number of ranks (Accelerator(step_scheduler_with_optimizer=True) counts by it)"] = ranks

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "batches_of_all_ranks": self.batches * self._ranks, "fixed": self._fixed}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        for what, value in self._fixed.items():
            if (saved := state["fixed"].get(what, value)) != value:
                raise ValueError(f"{what} was {saved} and would now be {value}: going on would change the experiment")
        self.epoch, self.batches = state["epoch"], state["batches_of_all_ranks"] // self._ranks
