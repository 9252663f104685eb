"""What two components must agree on: messages, environment names, exit codes. Standard library only.

Not for logic: a module here may be imported by every part of Evertrain, also
by the user's training process, so it must stay free of dependencies.
"""
