"""State of optimizers in checkpoints of all kinds."""
