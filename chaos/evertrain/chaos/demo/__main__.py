"""Entry point of ``make demo``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from evertrain.chaos.demo.run import DemoFailed, Options, run
from evertrain.ctl.failures import CtlError

ROOT = Path(__file__).resolve().parents[4]


def main() -> None:
    """Run the demo. Exit codes: 0 all proven, 1 not, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="demo", description="Train for real, break it for real, prove what came back."
    )
    parser.add_argument("--job", type=Path, default=ROOT / "examples" / "pystdlib" / "job.yaml")
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    parser.add_argument("--steps", type=int, default=600)
    arguments = parser.parse_args()
    console = Console()
    try:
        code = run(Options(job=arguments.job, out=arguments.out.resolve(), steps=arguments.steps), console)
    except KeyboardInterrupt:
        console.print("interrupted; the cluster is down, nothing is left running", style="yellow")
        code = 130
    except (DemoFailed, CtlError, TimeoutError, StopIteration) as err:
        console.print(f"the demo did not reach its end: {err or type(err).__name__}", style="bold red")
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
