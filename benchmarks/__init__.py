"""Compares the speed of optimizers with TensorFlow's optimizers: `python benchmarks/run.py`."""
