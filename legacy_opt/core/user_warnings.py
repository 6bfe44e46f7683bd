"""Issues warnings that point at a line of the user's code; defines the warning classes."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Optional, Type


class GlobalStepWarning(UserWarning):
    """An optimizer depends on the global step, but does not increment it.

    Example::

        import warnings

        with warnings.catch_warnings(record=True) as caught, tf.Graph().as_default():
            warnings.simplefilter("always", legacy_opt.GlobalStepWarning)
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
            legacy_opt.AdamGSOptimizer().minimize(tf.reduce_sum(w * w))  # passes no global step
        print(caught[0].category.__name__)  # GlobalStepWarning
    """


class DifferenceFromOriginalWarning(UserWarning):
    """An optimizer computes something else than the original optimizer of the same name.

    Example::

        import warnings

        with warnings.catch_warnings(record=True) as caught, tf.Graph().as_default():
            warnings.simplefilter("always", legacy_opt.DifferenceFromOriginalWarning)
            a, b = (tf.compat.v1.get_variable(name, initializer=[1.0]) for name in "ab")
            optimizer = legacy_opt.AdamWOptimizer(weight_decay=0.01)
            optimizer.minimize(tf.reduce_sum(a + b), decay_var_list=[a])  # tf.contrib decays b, too
        print(caught[0].category.__name__)  # DifferenceFromOriginalWarning
    """


class UseLockingWarning(UserWarning):
    """`use_locking=True` has no effect: only fused and native kernels lock, and none is used.

    Example::

        import warnings

        with warnings.catch_warnings(record=True) as caught, tf.Graph().as_default():
            warnings.simplefilter("always", legacy_opt.UseLockingWarning)
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
            legacy_opt.DiffGradOptimizer(use_locking=True).minimize(tf.reduce_sum(w * w))
        print(caught[0].category.__name__)  # UseLockingWarning
    """


class NativeKernelWarning(UserWarning):
    """An optimizer with `native="auto"` runs without a compiled kernel."""


class RepartitionWarning(UserWarning):
    """Training can continue from a checkpoint only with the same partitions of a variable.

    Example::

        import warnings

        with warnings.catch_warnings(record=True) as caught, tf.Graph().as_default():
            warnings.simplefilter("always", legacy_opt.RepartitionWarning)
            parts = tf.compat.v1.fixed_size_partitioner(2)
            table = tf.compat.v1.get_variable("table", [8, 3], partitioner=parts)
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = legacy_opt.AdagradDecayOptimizer(0.1, step)
            optimizer.minimize(tf.reduce_sum(tf.nn.embedding_lookup(list(table), [3])), step)
        print(caught[0].category.__name__)  # RepartitionWarning
    """


# The packages whose frames are not the user's own code.
_LIBRARIES = ("contextlib", "keras", "legacy_opt", "tensorflow", "tensorflow_core", "tf_keras")


def users_frame() -> Optional[FrameType]:
    """Returns the innermost stack frame outside this package, TensorFlow and Keras, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").split(".")[0]
        if package not in _LIBRARIES:
            return frame
        frame = frame.f_back
    return None


def warn(message: str, category: Type[Warning]):
    """Issues a warning that points at the user's line, the line of `users_frame`."""
    target = users_frame()
    frame = sys._getframe(1)
    stacklevel = 2  # the caller of `warn`
    while frame is not None and frame is not target:
        frame = frame.f_back
        stacklevel += 1
    warnings.warn(message, category, stacklevel=stacklevel)
