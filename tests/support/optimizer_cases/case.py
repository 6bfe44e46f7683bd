"""Describes an optimizer with its arguments, for tests that run with every optimizer."""

import inspect
from typing import Callable, NamedTuple, Optional, Tuple

import tensorflow as tf


class Original(NamedTuple):
    """The class of TensorFlow 1.15's `tf.contrib.opt` whose results are bit-equal to a `Case`'s.

    Attributes:
      name: the class's name in `tf.contrib.opt`, or "extend_with_decoupled_weight_decay" for a
        class that this function returns.
      variables: the variables of `tests/support/problems.py` that the class can train; empty for
        all.
      ref_only: whether the class applies sparse gradients correctly only to ref variables.
      dtypes: the dtypes of variables that the class can train.
      base: the class to pass to `extend_with_decoupled_weight_decay`, or None.
    """

    name: str
    variables: Tuple[str, ...] = ()
    ref_only: bool = False
    dtypes: Tuple[str, ...] = ("float16", "float32", "float64")
    base: Optional[type] = None

    def optimizer(self):
        """Returns the class."""
        found = getattr(tf.contrib.opt, self.name)
        return found if self.base is None else found(self.base)


class Case(NamedTuple):
    """One optimizer with one set of arguments.

    Attributes:
      optimizer: the class.
      arguments: its keyword arguments, without `global_step`.
      oracle: a function of a variable's value and name that returns the `oracles.Oracle`.
      ulps: the allowed difference from the oracle after one training step, in units in the last
        place (ulps). The optimizer's method `rule` and its fused kernel have the same limit. A
        comment beside the number gives the reason.
      original: the `Original`, or None if `tf.contrib.opt` has no such class.
      regrouped: whether graph rewriting regroups the products in sparse updates. Then the last bits
        in a Session differ from those in eager execution, and with 16-bit dtypes also from those in
        a `tf.function`.
      dtypes: the dtypes of variables that the class can train. Others raise a TypeError.
    """

    optimizer: type
    arguments: dict
    oracle: Callable
    ulps: float
    original: Optional[Original] = None
    regrouped: bool = False
    dtypes: Tuple[str, ...] = ("float16", "float32", "float64")

    def make(self, global_step, **overrides):
        """Returns a new optimizer; passes `global_step` if its constructor has this argument."""
        return self.construct(self.optimizer, global_step, **overrides)

    def construct(self, optimizer, global_step, **overrides):
        """Returns a new optimizer of the given class with the case's arguments."""
        arguments = dict(self.arguments, **overrides)
        if takes_global_step(optimizer):
            arguments["global_step"] = global_step
        return optimizer(**arguments)

    def make_composed(self, global_step):
        """Returns a new optimizer that uses its method `rule` instead of a fused kernel."""
        optimizer = self.make(global_step)
        optimizer.use_fused_kernels = False
        return optimizer


def takes_global_step(optimizer):
    """Returns whether an optimizer's constructor has the argument `global_step`."""
    return "global_step" in inspect.signature(optimizer.__init__).parameters
