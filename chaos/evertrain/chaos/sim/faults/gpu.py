"""Faults of accelerators, as the driver's Xid numbers tell them: once, again and again, hanging, or slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from evertrain.chaos.sim.faults.host import without_power
from evertrain.chaos.sim.faults.kind import (
    AT_ONCE,
    Begin,
    Cost,
    Group,
    Hits,
    Kind,
    Lasts,
    Scene,
    Undo,
    all_of,
    has_workers,
)
from evertrain.chaos.sim.faults.touch import die, die_soon, each_time, freeze, once, slow
from evertrain.chaos.sim.plan import Planned

ONCE = (
    (13, "a worker's kernel reads out of range", "CUDA error: an illegal memory access was encountered"),
    (31, "the GPU's memory management faults", "CUDA error: an illegal memory access was encountered"),
    (43, "the GPU stops processing one program's work", "CUDA error: unspecified launch failure"),
    (45, "a channel is torn down after the program aborted", "CUDA error: operation not permitted"),
    (94, "a contained memory error ends the one program that used the page", "CUDA error: uncorrectable ECC error"),
)
AGAIN = (
    (48, "a double-bit error stays until the GPU is reset", "CUDA error: uncorrectable ECC error encountered"),
    (74, "an NVLink fails until the GPUs are reset", "CUDA error: unspecified launch failure"),
    (79, "a GPU falls off the bus until its node is rebooted", "CUDA error: no CUDA-capable device is detected"),
    (95, "an uncontained memory error stays until the GPU is reset", "CUDA error: uncorrectable ECC error encountered"),
)
RESET = Lasts(600.0, 7200.0)
"""Repairs that are a reset or a reboot."""


def _dies_again(message: str, scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return _until_given_back(scene, node.name, scene.afflictions.afflict(node, die_soon(scene, 1, message)))


def _until_given_back(scene: Scene, node: str, well: Undo) -> Undo:
    """Whoever is on call drains the node after a while, and gives it back when it is well."""
    over, drained = False, list[Undo]()

    def drain() -> None:
        if not over:
            drained.append(scene.drained(node, "its GPU is ill"))

    def undo() -> None:
        nonlocal over
        over = True
        well()
        all_of(drained)()

    scene.later(scene.rng.uniform(20.0, 600.0), drain)
    return undo


def _gsp_timeout(scene: Scene, planned: Planned) -> Undo:
    node = scene.node(planned.target)
    return _until_given_back(scene, node.name, scene.afflictions.afflict(node, freeze))


def _missing(scene: Scene, planned: Planned) -> Undo:
    """The node boots with fewer GPUs; the next boot brings them back."""
    node = scene.node(planned.target)
    slots, node.slots = node.slots, max(1, node.slots - int(planned.size))
    scene.later(60.0, without_power(scene, node))

    def undo() -> None:
        node.slots = slots
        scene.later(60.0, without_power(scene, node))

    return undo


def _xids() -> Iterator[Kind]:
    for number, what, message in ONCE:
        once_only = _xid(number, what, once(die(1, message)), cost=Cost.WORK, lasts=AT_ONCE)
        yield replace(once_only, needs=has_workers)
    for number, what, message in AGAIN:
        # A job has no more patience than its retry policy says: nobody but the operator sees yet that a node is ill.
        yield _xid(number, what, partial(_dies_again, message), cost=Cost.JOB, lasts=RESET)
    yield _xid(119, "the GPU's system processor times out: workers hang", _gsp_timeout, cost=Cost.JOB, lasts=RESET)


def _xid(number: int, what: str, begin: Begin, *, cost: Cost, lasts: Lasts) -> Kind:
    return Kind(
        name=f"xid_{number}",
        group=Group.GPU,
        what=f"Xid {number}: {what}.",
        sources=(f"trace: gpu.xid_{number}",),
        hits=Hits.NODE,
        cost=cost,
        begin=begin,
        lasts=lasts,
    )


KINDS = (
    *_xids(),
    Kind(
        name="thermal_throttle",
        group=Group.GPU,
        what="A GPU is hot or its clock stuck low: every worker there is slow. Size: the factor.",
        sources=("trace: gpu.thermal_throttle", "trace: gpu.clock_stuck_low"),
        hits=Hits.NODE,
        cost=Cost.NOTHING,
        begin=each_time(slow),
        lasts=Lasts(1800.0, 36_000.0),
        sizes=(1.1, 3.0),
    ),
    Kind(
        name="gpu_missing",
        group=Group.GPU,
        what="After a reboot the node counts fewer GPUs. Size: how many fewer.",
        sources=("trace: gpu.gpu_missing", "case L14"),
        hits=Hits.NODE,
        cost=Cost.WORK,
        begin=_missing,
        lasts=Lasts(1800.0, 10_800.0),
        sizes=(1, 4),
    ),
)
