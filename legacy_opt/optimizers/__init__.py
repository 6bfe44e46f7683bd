"""The optimizers: their constructors, documentation and update rules."""
