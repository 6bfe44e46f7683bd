"""The stages of leave_tensorflow.py: a Session, and PyTorch without TensorFlow."""
