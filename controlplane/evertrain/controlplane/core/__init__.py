"""Pure decisions: ``step(state, event) -> Decision``. No clock, randomness, I/O, logging or await in here."""
