"""Measures the optimizers' speed relative to TensorFlow's own: `python benchmarks/run.py`."""
