"""LazyAdam, AdamGS, LazyAdamGS, Nadam, AdaMax and AdamAsync."""

CASES = {}
