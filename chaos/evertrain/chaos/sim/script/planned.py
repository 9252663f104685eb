"""Verbs for planned faults: the kinds that the swarm draws from, at their time and for their length."""

from __future__ import annotations

from evertrain.chaos.sim.faults import KINDS
from evertrain.chaos.sim.plan import BadPlan, read
from evertrain.chaos.sim.script.args import Args
from evertrain.chaos.sim.script.stage import Stage
from evertrain.chaos.sim.script.verb import Verb


async def _at(stage: Stage, args: Args) -> None:
    args.rest()
    try:
        planned = read(args.text)
    except BadPlan as err:
        raise args.wrong(str(err)) from err
    if planned.kind not in KINDS:
        raise args.wrong(f"no kind of fault is called {planned.kind}; there are {', '.join(KINDS)}")
    stage.planned.append(planned)


async def _heal(stage: Stage, args: Args) -> None:
    args.done()
    for injector in stage.injectors:
        injector.heal()
    stage.injectors.clear()


VERBS = (
    Verb(
        "at SECONDSs for SECONDSs KIND TARGET [size=1] [upon=PHASE]",
        "A fault of the swarm's kinds, counted from the start of the script. Those in a row are one plan.",
        _at,
    ),
    Verb("heal", "Take back every planned fault that still lasts; none begins any more.", _heal),
)
