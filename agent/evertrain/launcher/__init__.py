"""One process per job and node that keeps a warm spare, forks the workers and knows at once how they end.

Runs in the job's own Python: standard library, torch and :mod:`evertrain.contract`
only, and the launcher process itself imports no torch. Not for deciding
anything about the gang: ranks, generations and checkpoints come in orders.
"""
