"""Which tasks with checkpoints run on this node, and how they ended. Pure, as the agent's core is; runs none.

A task is wanted for as long as the coordinator orders it, and its result is
told for as long. An agent that starts anew knows of none, and gets them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from evertrain.agent.model import Action, Errand, Progress, StartTask, State, StopTask
from evertrain.contract.task import TaskKind, TaskOrder, TaskResult

AT_ONCE: Final = {TaskKind.VERIFY: 1, TaskKind.REMOVE: 2, TaskKind.EXPORT: 1}
"""Processes of a kind: a node's network and processors are training's first."""


def ordered(state: State, wanted: tuple[TaskOrder, ...]) -> State:
    """These tasks are wanted now, and no others; what runs and is not wanted any more is still known until it ended."""
    known = state.errands
    kept = {order.id: known.get(order.id, Errand(order=order)) for order in wanted}
    busy = (Progress.RUNNING, Progress.UNWANTED, Progress.STOPPING)
    rest = {task: each for task, each in known.items() if task not in kept and each.progress in busy}
    return _with(state, {**kept, **{task: replace(each, progress=_stops(each)) for task, each in rest.items()}})


def ended(state: State, result: TaskResult) -> State:
    """A task's process is gone."""
    known = state.errands.get(result.id)
    if known is None:
        return state
    if known.progress is not Progress.RUNNING:
        return _with(state, {task: each for task, each in state.errands.items() if task != result.id})
    return _with(state, {**state.errands, result.id: replace(known, progress=Progress.ENDED, result=result)})


def decide(state: State, actions: list[Action]) -> State:
    """Start what waits and has room, end what is not wanted; adds to ``actions``."""
    found = dict(state.errands)
    for task, each in state.errands.items():
        if each.progress is Progress.UNWANTED:
            actions.append(StopTask(id=task))
            found[task] = replace(each, progress=Progress.STOPPING)
        elif each.progress is Progress.WAITING and _running(found, each.order.kind) < AT_ONCE[each.order.kind]:
            actions.append(StartTask(order=each.order))
            found[task] = replace(each, progress=Progress.RUNNING)
    return _with(state, found)


def results(state: State) -> tuple[TaskResult, ...]:
    """What the node tells of tasks that have ended."""
    return tuple(each.result for each in state.errands.values() if each.result is not None)


def _stops(errand: Errand) -> Progress:
    return Progress.UNWANTED if errand.progress is Progress.RUNNING else errand.progress


def _running(errands: Mapping[str, Errand], kind: TaskKind) -> int:
    idle = (Progress.WAITING, Progress.ENDED)
    return sum(each.order.kind is kind and each.progress not in idle for each in errands.values())


def _with(state: State, errands: Mapping[str, Errand]) -> State:
    return state if errands == state.errands else replace(state, errands=errands)
