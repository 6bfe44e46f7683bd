"""The global step: which one is meant, a new one where there is none, and where it ends."""

import contextlib
import threading

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.user_warnings import GlobalStepWarning, warn

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


def step_below_the_end(optimizer_name, step):
    """Returns a step with a check, when it runs, that an int32 step can advance once more.

    Past its largest value it is negative: powers of beta are infinite, decays start anew or never
    come. A step of 64 bits does not get there.

    Args:
      optimizer_name: for the message.
      step: a scalar tensor.
    """
    if step.dtype != tf.int32:
        return step
    message = (
        f"{optimizer_name}: an int32 global_step must be from 0 to {step.dtype.max - 1}, so "
        "that t = global_step + 1 does not overflow. Use int64, as "
        "tf.compat.v1.train.get_or_create_global_step() does. It is"
    )
    in_range = tf.logical_and(step >= 0, step < step.dtype.max)
    with tf.control_dependencies([tf.debugging.Assert(in_range, [message, step])]):
        return tf.identity(step)


def of_graph():
    """Returns the step of the graph that is being built or of one around it; None without one."""
    step = v1.train.get_global_step()
    if step is None:
        with tf.init_scope():
            step = v1.train.get_global_step()
    return step


def of_this_graph(optimizer_name, step):
    """Returns a step; raises a ValueError if it is of another graph than the one being built."""
    in_graph = versions.building() in (versions.GRAPH, versions.CONTROL_FLOW)
    if in_graph and step.graph is not v1.get_default_graph():
        raise ValueError(
            f"{optimizer_name}: global_step={step!r} belongs to another graph than the one being "
            "built. Pass None to go by each graph's own."
        )
    return step


def warn_if_it_stands_still(optimizer_name, given, step, advanced):
    """Warns of a step that nobody is known to advance.

    Args:
      optimizer_name: for the message.
      given: the `global_step` of the constructor.
      step: the step that the optimizer reads.
      advanced: the step that is advanced after this update, or None.
    """
    remedy = "Pass global_step=… to minimize() or apply_gradients()"
    if isinstance(given, (int, float)):
        problem = f"goes by the constant global_step={given!r}"
        remedy = "Pass the graph's global step to the constructor: global_step=…"
    elif advanced is None:
        problem = "was given no global_step to advance"
    elif step is advanced or not isinstance(step, tf.Variable):
        return
    elif tf.executing_eagerly() or step.name != advanced.name:
        problem = f"goes by {step.name}, but is given {advanced.name} to advance"
    else:
        return
    warn(
        f"{optimizer_name} {problem}. Unless something else advances it, the step stays where it "
        "is: bias corrections, decays and intervals that go by it never advance. "
        f"{remedy}, or set optimizer.global_step_is_advanced = True.",
        GlobalStepWarning,
    )


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
