"""What passes between RuleOptimizer and an optimizer: one update, and the warnings about it."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple


class GlobalStepWarning(UserWarning):
    """An optimizer that depends on the global step was given none to advance."""


class UseLockingWarning(UserWarning):
    """`use_locking=True` cannot be kept: the update runs without a kernel that locks."""


class RepartitionWarning(UserWarning):
    """A checkpoint of a partitioned variable will go on rightly with the same partitions alone."""


def users_frame():
    """Returns the frame of the user's own code that led here, or None.

    It is the innermost one outside this package and TensorFlow.
    """
    frame = sys._getframe(1)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").split(".")[0]
        if package not in ("legacy_opt", "tensorflow", "tensorflow_core"):
            return frame
        frame = frame.f_back
    return None


def warn(message, category):
    """Warns at the user's own line: the first one outside this package and TensorFlow."""
    level, frame, users = 2, sys._getframe(1), users_frame()
    while frame is not None and frame is not users:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class Addition(NamedTuple):
    """A rule's way to say "add this to the slot" where others give the slot's new value.

    Concurrent steps on shared variables then lose no addition; see `RuleOptimizer.rule`.
    """

    value: Any


class Fading(NamedTuple):
    """A slot's new value, together with what happens to rows that are not touched.

    A sparse gradient sets the touched rows to `value` and multiplies all others by `factor`, as
    momentum does that decays everywhere: this reads and writes the whole slot. With a dense
    gradient it means `value` alone.
    """

    value: Any
    factor: Any


class Update(NamedTuple):
    """All there is to know about one variable's update.

    Attributes:
      grad: the gradient, a tensor of the variable's shape, or of its touched rows if `sparse`.
      variable: the variable, ref or resource.
      slots: the variable's slot variables, as attributes.
      hyper: hyperparameters, non-slot values and `global_step`, as attributes.
      access: reads and writes the whole variable or its touched rows: `legacy_opt.access`.
      prepared: what `prepare_step` returned for this variable, or None.
      densified: whether the gradient came as rows and was made dense for `whole_tensor`.
    """

    grad: Any
    variable: Any
    slots: SimpleNamespace
    hyper: SimpleNamespace
    access: Any
    prepared: Any = None
    densified: bool = False

    @property
    def sparse(self):
        """Whether the gradient comes as rows."""
        return self.access.indices is not None
