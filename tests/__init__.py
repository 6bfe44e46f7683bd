"""The tests.

In TensorFlow 1.15, eager execution is off by default. Importing this package enables it, except if
LEGACY_OPT_TEST_GRAPH_MODE is set. Tests that need a graph create a `tf.Graph`. Therefore one
process can test eager code and graphs.
"""

import importlib.util
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

if importlib.util.find_spec("tensorflow"):  # the environments of `make leave` have none
    import tensorflow as tf

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    if not tf.executing_eagerly() and "LEGACY_OPT_TEST_GRAPH_MODE" not in os.environ:
        tf.compat.v1.enable_eager_execution()
