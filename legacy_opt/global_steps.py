"""The global step: the graph's own, a new one, or the one that a wrapper around advances."""

import contextlib
import threading

import tensorflow as tf

v1 = tf.compat.v1
_local = threading.local()


@contextlib.contextmanager
def advancing(global_step):
    """Tells optimizers that apply gradients meanwhile which step will be advanced afterwards.

    Args:
      global_step: the variable; None leaves it at what an outer wrapper tells.
    """
    outer = advanced_by_wrapper()
    _local.step = outer if global_step is None else global_step
    try:
        yield
    finally:
        _local.step = outer


def advanced_by_wrapper():
    """Returns the step that a wrapper around the caller will advance, or None."""
    return getattr(_local, "step", None)


def of_graph():
    """Returns the step of the graph that is being built or of one around it; None without one."""
    step = v1.train.get_global_step()
    if step is None:
        with tf.init_scope():
            step = v1.train.get_global_step()
    return step


class NewStep:
    """A step for where there is none.

    TensorFlow finds the step of a TF1 graph again, and that of eager code; not one that is made
    while a `tf.function` is traced, which it notes in the collection of that trace.
    """

    def __init__(self):
        self._of_eager_code = None

    def get(self):
        """Returns the step, made once a graph, and once for eager code and `tf.function`s."""
        with tf.init_scope():
            if not tf.executing_eagerly():
                return v1.train.get_or_create_global_step()
            if self._of_eager_code is None:
                self._of_eager_code = v1.train.create_global_step()
            return self._of_eager_code
