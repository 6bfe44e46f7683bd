"""Functions that XLA compiles."""

import pytest
import tensorflow as tf


def with_xla():
    """Returns the keyword argument with which tf.function compiles with XLA, as a dict."""
    # Before TensorFlow 2.5, the argument's name is experimental_compile.
    for name in ("jit_compile", "experimental_compile"):
        try:
            tf.function(lambda: 0, **{name: True})
        except TypeError:
            continue
        return {name: True}
    pytest.skip("this version's tf.function has no argument to request XLA")
