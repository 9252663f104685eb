"""``make demo``: a real cluster on this machine, a real training run, real SIGKILLs, the proof of what came back."""
