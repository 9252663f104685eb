"""``evertrain-health``: what operators tell a node's agent about its health, by files in its state directory.

For scripts that reset a GPU or restart a host, and for people. Needs no
coordinator, and works while the agent is away.
"""

from __future__ import annotations

import argparse
import getpass
import sys
import time
from pathlib import Path
from typing import Final

from evertrain.agent.health.keeping import HOLD_S_MAX, Folder, Hold
from evertrain.agent.health.rules_file import RulesError, load

EXIT_FAILED: Final = 1
EPILOG: Final = """\
examples:
  evertrain-health hold --state-dir /var/lib/evertrain --for 600 --reason "reset of GPU 3, ticket 4711"
  nvidia-smi --gpu-reset -i 3
  evertrain-health release --state-dir /var/lib/evertrain
  evertrain-health clear --state-dir /var/lib/evertrain --kind gpu-off-bus --entity 0000:3b:00
  evertrain-health check-config /etc/evertrain/health.toml

exit codes: 0 done, 1 it could not be done, 2 wrong usage
"""


def main() -> None:
    """Entry point."""
    given = _parser().parse_args()
    try:
        print(_do(given))
    except (OSError, RulesError) as err:
        print(f"evertrain-health: error: {err}", file=sys.stderr)
        sys.exit(EXIT_FAILED)


def _do(given: argparse.Namespace) -> str:
    if given.verb == "check-config":
        rules = load(given.file)
        return f"{given.file}: good; {len(rules.signals)} signs, {len(rules.checks)} checks, {len(rules.mounts)} mounts"
    if not given.state_dir.is_dir():
        raise OSError(f"{given.state_dir} is no directory; give the agent's --state-dir")
    folder, now_s = Folder(given.state_dir), time.time()
    if given.verb == "hold":
        folder.set_hold(Hold(until_s=now_s + given.seconds, reason=given.reason, by=getpass.getuser()))
        return f"the GPU probes of this node rest for {given.seconds:g} s, or until 'evertrain-health release'"
    if given.verb == "release":
        return "the hold is ended" if folder.release() else "there was no hold"
    folder.clear(now_s, given.kind, given.entity)
    return "the agent clears it within seconds; what is still wrong is raised again by the next look"


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= HOLD_S_MAX:
        raise argparse.ArgumentTypeError(f"1 to {HOLD_S_MAX:g} seconds")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evertrain-health",
        description="Tell this node's agent about work on its hardware.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    hold = verbs.add_parser("hold", help="rest the GPU probes: asking a GPU can make its reset fail")
    hold.add_argument("--for", dest="seconds", type=_seconds, default=600.0, metavar="SECONDS", help="at most so long")
    hold.add_argument("--reason", required=True, help="why: others will ask")
    release = verbs.add_parser("release", help="end the hold")
    clear = verbs.add_parser("clear", help="end conditions, after a repair or a validation")
    clear.add_argument("--kind", default="", help="of this kind only, as 'ctl node' names it")
    clear.add_argument("--entity", default="", help="of this thing only, as 'ctl node' names it")
    for each in (hold, release, clear):
        each.add_argument("--state-dir", required=True, type=Path, metavar="DIR", help="the agent's")
    check = verbs.add_parser("check-config", help="check a file for --health-config without using it")
    check.add_argument("file", type=Path)
    return parser


if __name__ == "__main__":
    main()
