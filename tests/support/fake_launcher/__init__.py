"""A launcher of real processes without torch: stands in for evertrain.launcher where only the agent is tested."""
