"""What the demo measured, as numbers, as text and as a picture."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evertrain.chaos.demo.script import Fault
from evertrain.trainer.data import ConsumptionReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One completed step as rank 0 wrote it down."""

    generation: int
    step: int
    loss: float
    world_size: int
    time_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What one fault cost, from the first signal on."""

    fault: str
    at_step: int
    generation: int
    """The generation that came after it."""
    detect_ms: float
    """Until the coordinator had decided what broke."""
    first_step_ms: float
    """Until the first step of the new generation was complete on rank 0."""
    steps_lost: int
    """Steps that were complete and had to be done again."""
    cause: str
    phases: dict[str, float]
    """Milliseconds by part of the recovery, on the coordinator's and the nodes' clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of it."""

    steps: int
    seconds: float
    generations: int
    loss_first: float
    loss_last: float
    recoveries: tuple[Recovery, ...]
    audit: ConsumptionReport
    losses_repeat: bool | None
    """Whether steps that were done twice gave the same loss at the same world size; None: there were none."""


def read_steps(folder: Path) -> list[Step]:
    """The steps that rank 0 of each generation wrote, in the order of time."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            if line.endswith("}"):  # a killed writer leaves a cut last line
                found.append(Step(**json.loads(line)))
    return sorted(found, key=lambda each: each.time_ns)


def kept(steps: Sequence[Step]) -> list[Step]:
    """The history that counts: of each step the last time it was done."""
    last = {each.step: each for each in steps}
    return [last[step] for step in sorted(last)]


def write_json(report: Report, path: Path) -> None:
    """The report for machines."""
    path.write_text(json.dumps(dataclasses.asdict(report), indent=2) + "\n")


def text(report: Report) -> str:
    """The report for people."""
    lines = [
        f"{report.steps} steps in {report.seconds:.0f} s over {report.generations} generations; "
        f"loss {report.loss_first:.3f} -> {report.loss_last:.3f}",
        "",
        f"{'fault':<58} {'detect':>9} {'new step':>9} {'lost':>5}",
    ]
    for each in report.recoveries:
        lines.append(
            f"{each.fault[:58]:<58} {each.detect_ms:>6.0f} ms {each.first_step_ms:>6.0f} ms {each.steps_lost:>5}"
        )
        phases = ", ".join(f"{name} {value:.0f}" for name, value in each.phases.items() if value)
        lines.append(f"    {each.cause}")
        lines.append(f"    phases in ms: {phases}")
    audit = report.audit
    verdict = "exact" if audit.exact else "NOT EXACT"
    lines += [
        "",
        f"data order {verdict}: {audit.samples} samples of {audit.steps} steps compared with the undisturbed plan: "
        f"{audit.duplicates} twice, {audit.missing} missing; {audit.redone_steps} steps done again after faults, "
        f"of which {sum(each.steps_lost for each in report.recoveries)} had been complete",
    ]
    if report.losses_repeat is not None:
        same = "the same losses, bit for bit" if report.losses_repeat else "DIFFERENT losses"
        lines.append(f"steps done again at the same world size gave {same}")
    return "\n".join(lines)


def draw(steps: Sequence[Step], faults: Sequence[Fault], path: Path) -> None:
    """Loss and world size over steps, the faults marked."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    history = kept(steps)
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(10, 5.6), sharex=True, height_ratios=(4, 1), layout="constrained"
    )
    top.plot([each.step for each in history], [each.loss for each in history], color="#1f5fa8", linewidth=1.2)
    redone = [each for each in steps if each not in set(history)]
    top.scatter(
        [each.step for each in redone],
        [each.loss for each in redone],
        s=9,
        color="#d97a00",
        zorder=3,
        label=f"done, lost and done again ({len(redone)} steps)",
    )
    for at, fault in enumerate(faults):
        for axis in (top, bottom):
            axis.axvline(fault.step, color="#b3261e", linestyle="--", linewidth=1)
        top.annotate(
            fault.name.split(":")[0].split(" (")[0],
            (fault.step, 0.97 - 0.08 * at),
            xycoords=("data", "axes fraction"),
            xytext=(5, 0),
            textcoords="offset points",
            color="#b3261e",
            fontsize=9,
            va="top",
        )
    top.set_ylabel("loss (nats per byte)")
    top.set_title("A real run through a killed worker and a killed node", loc="left")
    top.grid(alpha=0.25)
    if redone:
        top.legend(loc="lower left", frameon=False)
    bottom.step([each.step for each in history], [each.world_size for each in history], where="post", color="#2d7d46")
    bottom.set_ylabel("world size")
    bottom.set_xlabel("step")
    bottom.set_ylim(0, max(each.world_size for each in history) + 0.6)
    bottom.grid(alpha=0.25)
    figure.savefig(path, dpi=110)
    plt.close(figure)
