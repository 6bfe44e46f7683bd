"""The stages of leave_tensorflow.py: a Session; PyTorch and JAX without TensorFlow."""

KEPT = 100  # steps whose gradients the Session writes
