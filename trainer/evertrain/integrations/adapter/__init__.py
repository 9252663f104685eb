"""Checkpoints of scripts that only write ``torch.save`` files or DCP folders, verified and kept from outside.

The script stays as it is. Beside it, ``python -m evertrain.integrations.adapter
watch`` seals each checkpoint that is complete: a file ``*.evertrain.json``
next to it holds its digests. Before it starts, ``... latest`` names the newest
that is sound now. Needs neither torch nor a launcher, and runs nothing that a
checkpoint holds. Not for what ``evertrain.trainer`` saves.
"""
