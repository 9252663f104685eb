"""Carries facts to the core and its decisions out, in an order that survives a crash."""
