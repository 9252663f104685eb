"""The agent: one per node. Keeps a session with the coordinator and manages the node's launchers.

Not for training: workers belong to launchers, which outlive the agent.
"""
