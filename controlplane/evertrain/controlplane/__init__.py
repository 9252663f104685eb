"""The coordinator: a pure core, the store behind it, the shell around it, the server in front of it."""
