"""What people already use, made resumable: Hugging Face Trainer, Lightning, Accelerate, and scripts that save by hand.

Each module needs its framework and nothing of the others: import the one you
use. Not for scripts written for Evertrain: those use ``evertrain.trainer``.
"""
