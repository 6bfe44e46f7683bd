"""The data sets of `tf.contrib.learn.datasets`."""

from . import mnist

__all__ = ["mnist"]
