"""The commands, grouped by what they are about. Each is thin: it asks, and hands what it got to a view."""
