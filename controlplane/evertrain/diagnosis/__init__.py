"""What broke, said from what ranks, nodes and schedulers wrote: pure, from evidence to a verdict.

Not for gathering evidence and not for acting: agents and launchers gather, the coordinator and people act.
Modules are imported one by one; ``classify`` is the way in.
"""
