"""Makes a training script resumable: reports, checkpoints, elastic data order. Needs the standard library and torch.

Usage::

    from evertrain import trainer

    with trainer.session() as job:
        state = job.state(model=model, optimizer=optimizer, sampler=sampler)
        start = state.restore()
        for step, ids in sampler.steps(start, total):
            ...
            job.step_done(step + 1, loss=loss, tokens=tokens)
"""

from evertrain.trainer import data
from evertrain.trainer.session import Session, session

__all__ = ["Session", "data", "session"]
