"""Speed of the optimizers against TensorFlow's own: `python benchmarks/run.py`."""
