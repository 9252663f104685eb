"""Faults on purpose: the demo now; simulation and game-days stand on the same parts."""
