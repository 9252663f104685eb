"""The picture of a comparison: where the time went, and when. Numbers are the report's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evertrain.chaos.fleet.report import Outcome, Report
from evertrain.chaos.fleet.training import Bucket

COLOURS = {
    Bucket.RECOMPUTE: "#b3261e",
    Bucket.SAVE: "#8f9bb3",
    Bucket.SLOW: "#6b5b95",
    Bucket.DETECT: "#e3a008",
    Bucket.STOP: "#c9b79c",
    Bucket.RESTART: "#d97a00",
    Bucket.RESTORE: "#2f8f9d",
    Bucket.WAIT_PERSON: "#1f5fa8",
    Bucket.WAIT_NODES: "#7fb2e5",
}
"""What was lost, in the order in which it is stacked; spares and repairs are not the job's time."""


def draw(report: Report, path: Path) -> None:
    """Write the picture. A row of the lower part is a policy; time runs to the right, dark is time that was lost."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    count = len(report.outcomes)
    figure, (bars, strips) = plt.subplots(
        2, 1, figsize=(11, 2.4 + 0.85 * count), height_ratios=(1.2, 1), layout="constrained"
    )
    title = f"What each policy lost: {report.nodes:,} nodes, {report.days:g} days of {report.trace}, seed {report.seed}"
    names = [each.policy for each in report.outcomes]
    _bars(bars, report, names)
    bars.set_title(title, loc="left", fontsize=13, pad=14)
    _strips(figure, strips, report, names)
    handles, labels = bars.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(COLOURS), frameon=False, fontsize=9, handlelength=1.0
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _job_s(report: Report) -> float:
    return report.nodes * report.gpus_per_node * report.days * 86_400.0


def _bars(axis: Any, report: Report, names: list[str]) -> None:
    left = [0.0] * len(names)
    for bucket, colour in COLOURS.items():
        shares = [100 * each.ledger[bucket] / _job_s(report) for each in report.outcomes]
        axis.barh(names, shares, left=left, color=colour, height=0.62, label=bucket.replace("_", " "))
        left = [sum(pair) for pair in zip(left, shares, strict=True)]
    for at, each in enumerate(report.outcomes):
        axis.text(left[at], at, f"  ETTR {each.ettr:.3f}, {_people(each)}", va="center", fontsize=9)
    axis.set_xlim(0, max(left) * 1.4 + 1e-9)
    axis.invert_yaxis()
    axis.set_xlabel("% of the job's accelerator time")
    axis.grid(axis="x", alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _people(each: Outcome) -> str:
    return f"{sum(each.interruptions.values())} failures, {sum(each.touches.values())} human touches"


def _strips(figure: Any, axis: Any, report: Report, names: list[str]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("lost", ["#eef1f4", "#f3c98b", "#d97a00", "#b3261e", "#5c0f0a"])
    lost = [[1.0 - share for share in each.productive] for each in report.outcomes]
    image = axis.imshow(
        lost,
        aspect="auto",
        cmap=shades,
        vmin=0.0,
        vmax=1.0,
        extent=(0, report.days, len(names) - 0.5, -0.5),
        interpolation="nearest",
    )
    axis.set_yticks(range(len(names)), names)
    for at in range(1, len(names)):
        axis.axhline(at - 0.5, color="white", linewidth=3)
    axis.set_xlabel("day")
    axis.spines[:].set_visible(False)
    hours = 24 * report.days / len(report.outcomes[0].productive)
    figure.colorbar(image, ax=axis, label=f"lost, of {hours:.2g} h each", pad=0.01, aspect=12)
