"""The optimizers under test, one module a family: NumPy oracles, and cases with their arguments."""
