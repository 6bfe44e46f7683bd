"""The optimizers, with constructors, documentation and update rules."""
