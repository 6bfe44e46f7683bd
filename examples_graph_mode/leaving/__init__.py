"""The stages of leave_tensorflow.py: a Session, and PyTorch without TensorFlow."""

KEPT = 100  # steps whose gradients the Session writes
