"""NumPy references (oracles) and test arguments of all optimizers, one module for each family."""
