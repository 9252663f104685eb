"""Checkpoints on storage: their form, how they are written, verified, kept and removed. Knows nothing of torch."""
