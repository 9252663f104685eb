"""``make demo``: a real cluster on this machine, a real training run, real SIGKILLs, and the proof of what came back."""
