"""The parts of `tf.contrib.learn` that read and prepare data."""

from . import datasets, preprocessing

__all__ = ["datasets", "preprocessing"]
