"""Lightning, resumable to the last bit: verified checkpoints, the loops' own state, the same samples.

Usage::

    from evertrain import trainer
    from evertrain.integrations.lightning import Resumable, StepLoader

    with trainer.session(checkpoint_dir="checkpoints") as job:
        sampler = trainer.data.ElasticSampler(len(dataset), global_batch, seed=7)
        loader = StepLoader(dataset, sampler)
        lightning.Trainer(callbacks=[Resumable(job, loader, save_every_steps=100)], ...).fit(module, loader)

Lightning itself begins an epoch's loader anew when it resumes in its middle,
hence a loader of ours. Not for the FSDP and DeepSpeed strategies, which keep
the state in forms of their own.

Errors::

    NotExact (ValueError)    the Trainer is set up in a way that could not be resumed exactly; the text says what to set
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, Timer

from evertrain.integrations.not_exact import require_exact
from evertrain.integrations.resumed_rng import ResumedRng
from evertrain.trainer import Session
from evertrain.trainer.data import ElasticSampler
from evertrain.trainer.data.seeding import seed_of
from evertrain.trainer.parts import Stateful
from evertrain.trainer.session import HasDigest

OTHER_FORMS: Final = ("FSDPStrategy", "DeepSpeedStrategy")


class StepLoader:
    """A training loader for Lightning over an :class:`ElasticSampler`: one global batch a step, of which this rank's.

    It goes on at any step without reading those before, at any number of
    ranks. Randomness in the data belongs into ``data.SeededDataset``.
    """

    def __init__(self, dataset: Any, sampler: ElasticSampler, *, refs: bool = False, **settings: Any) -> None:
        """``refs`` is as for ``sampler.batches``; ``settings`` are those of torch's DataLoader (workers, collating)."""
        self.order = sampler
        self.step = 0
        """Global batches handed out since the job began: with several epochs, more than there are in one."""
        self._dataset, self._refs, self._settings = dataset, refs, settings

    def __len__(self) -> int:
        return self.order.order.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch in which the step lies."""
        stop = (self.step // len(self) + 1) * len(self)
        # With a generator of its own, beginning a pass draws nothing from the global one.
        generator = torch.Generator().manual_seed(seed_of("pass", self.order.order.seed, self.step))
        batches = self.order.batches(self.step, stop, refs=self._refs)
        loader: Any = torch.utils.data.DataLoader(
            self._dataset, batch_sampler=batches, generator=generator, **self._settings
        )
        for batch in loader:
            self.step += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Go there."""
        self.step = state["step"]


class Resumable(Checkpoint):
    """Lightning's callback: restores before the first step, reports and saves after each.

    It stands in for ``ModelCheckpoint``. A step's boundary is where the next
    one begins: by then its validation and what ends its epoch are over, and
    they are part of the state.
    """

    def __init__(
        self,
        job: Session,
        loader: StepLoader,
        *,
        save_every_steps: int = 0,
        tokens_per_step: int = 0,
        extra: Mapping[str, Stateful] | None = None,
        config: Mapping[str, Any] | None = None,
        dataset: HasDigest | None = None,
    ) -> None:
        """``loader`` is the one given to ``fit``; ``tokens_per_step`` are all ranks'; the rest is as for job.state."""
        self._job, self._loader = job, loader
        self._save_every_steps, self._tokens_per_step = save_every_steps, tokens_per_step
        self._extra, self._config, self._dataset = dict(extra or {}), config, dataset
        self._rng = ResumedRng()
        self._part: _TrainerPart | None = None
        self._loss: Any = None
        self._step = self._told_step = 0

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Everything is made, and nothing has run: restore."""
        require_resumable(trainer)
        first, *others = trainer.optimizers
        schedulers, self._part = _Schedulers(trainer), _TrainerPart(trainer, self._loader)
        state = self._job.state(
            model=pl_module,
            optimizer=first,
            scheduler=schedulers if trainer.lr_scheduler_configs else None,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            sampler=self._loader.order,
            extra={
                "lightning": self._part,
                **{f"optimizer_{number}": each for number, each in enumerate(others, start=1)},
                **self._extra,
            },
            config=self._config,
            dataset=self._dataset,
        )
        self._step = self._told_step = state.restore()
        if self._step:
            self._rng.keep()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """The next batch is there: from here on random numbers count, and the step before is over in every respect."""
        self._rng.put_back()
        self._tell()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep how the loops stand: Lightning can go on from here, and from no other place in all cases."""
        assert self._part is not None, "the fit has started"
        self._part.keep()
        self._loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        self._step = int(trainer.global_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The last step has no next one."""
        self._tell()

    def _tell(self) -> None:
        if self._step == self._told_step:  # nothing yet, or gradients are still being accumulated
            return
        every = self._save_every_steps
        save = every > 0 and self._step // every > self._told_step // every
        self._told_step = self._step
        self._job.step_done(self._step, loss=self._loss, tokens=self._tokens_per_step, save=save)


def require_resumable(trainer: Trainer) -> None:
    """Raise :class:`NotExact` for settings under which resuming changes the run."""
    strategy = type(trainer.strategy).__name__
    require_exact(
        "Lightning",
        {
            f"{strategy}: use DDP, or evertrain.trainer in a loop of your own": strategy in OTHER_FORMS,
            "ckpt_path: the checkpoint is found and verified without it; leave it out": bool(trainer.ckpt_path),
            "reload_dataloaders_every_n_epochs: the loader's position would be lost; set it to 0": (
                trainer.reload_dataloaders_every_n_epochs > 0
            ),
        },
    )


class _Schedulers:
    """The schedules of the Trainer's learning rates."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        return {"schedulers": [each.scheduler.state_dict() for each in self._trainer.lr_scheduler_configs]}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        for each, saved in zip(self._trainer.lr_scheduler_configs, state["schedulers"], strict=True):
            each.scheduler.load_state_dict(saved)


class _TrainerPart:
    """The Trainer's own state: its loops' counters, its callbacks', the module's and the data module's."""

    def __init__(self, trainer: Trainer, loader: StepLoader) -> None:
        self._trainer, self._loader = trainer, loader
        self.keep()

    def keep(self) -> None:
        """Remember the loops' counters and the loader's position as they are now."""
        self._loops, self._position = self._trainer.fit_loop.state_dict(), self._loader.state_dict()

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        module: dict[str, Any] = {}
        trainer.lightning_module.on_save_checkpoint(module)
        return {
            "accumulate_grad_batches": trainer.accumulate_grad_batches,
            "fit_loop": self._loops,
            "loader": self._position,
            "callbacks": {key: each.state_dict() for key, each in self._callbacks().items()},
            "module": module,
            "datamodule": trainer.datamodule.state_dict() if trainer.datamodule is not None else {},
        }

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        trainer = self._trainer
        if (now := trainer.accumulate_grad_batches) != state["accumulate_grad_batches"]:
            raise ValueError(f"accumulate_grad_batches was {state['accumulate_grad_batches']} and is now {now}")
        for key, each in self._callbacks().items():
            if saved := state["callbacks"].get(key):
                each.load_state_dict(saved)
        trainer.lightning_module.on_load_checkpoint(state["module"])
        if trainer.datamodule is not None:
            trainer.datamodule.load_state_dict(state["datamodule"])
        trainer.fit_loop.load_state_dict(state["fit_loop"])
        self._loader.load_state_dict(state["loader"])

    def _callbacks(self) -> dict[str, Any]:
        """But for a timer, which measures another time on each rank."""
        return {each.state_key: each for each in self._trainer.callbacks if not isinstance(each, Timer)}
