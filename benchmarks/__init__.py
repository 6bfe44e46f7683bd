"""Measures the optimizers' speed against TensorFlow's own: `python benchmarks/run.py`."""
