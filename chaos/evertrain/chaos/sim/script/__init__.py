"""Golden scripts: a scenario in commands, and beside them the story that a simulated cluster tells of it."""
