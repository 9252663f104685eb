"""Reproducible mode: bitwise the same weights at any world size, after any failure and any resize.

Usage::

    from evertrain.trainer import reproducible

    reproducible.use_deterministic_kernels()
    exact = reproducible.Reproducible(model, microbatches=8, seed=17)
    state = job.state(model=model, optimizer=optimizer, extra={"reproducible": exact})
    for step in range(state.restore(), steps):
        for microbatch in exact.step(step):
            inputs, targets = samples(order.microbatch(step, microbatch.index, of=8))
            microbatch.backward(loss_of(model(inputs), targets))
        exact.clip_grad_norm_(1.0)
        optimizer.step()
        job.step_done(step + 1, loss=exact.loss)
"""

from evertrain.trainer.reproducible.errors import (
    NotReproducible,
    OutsideStep,
    SettingsChanged,
    Unequal,
    Unfinished,
    Unsupported,
)
from evertrain.trainer.reproducible.share import Share, microbatch_seed
from evertrain.trainer.reproducible.step import Counts, Microbatch, Reproducible
from evertrain.trainer.reproducible.surroundings import use_deterministic_kernels

__all__ = [
    "Counts",
    "Microbatch",
    "NotReproducible",
    "OutsideStep",
    "Reproducible",
    "SettingsChanged",
    "Share",
    "Unequal",
    "Unfinished",
    "Unsupported",
    "microbatch_seed",
    "use_deterministic_kernels",
]
