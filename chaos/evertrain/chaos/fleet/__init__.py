"""What a policy would have cost a fleet: months of thousands of nodes in seconds. Not a test of the protocol."""
