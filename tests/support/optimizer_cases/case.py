"""What the shared tests have to know of each optimizer."""

import inspect
from typing import Callable, NamedTuple, Optional, Tuple

import tensorflow as tf


class Original(NamedTuple):
    """The class of `tf.contrib.opt` that a case has to equal bit for bit on TensorFlow 1.15.

    Attributes:
      name: its name in `tf.contrib.opt`; for a class that is made by
        `extend_with_decoupled_weight_decay`, the name of this function.
      variables: the variables of `tests/support/problems.py` that it can train; empty for all.
      ref_only: whether it cannot train resource variables with sparse gradients.
      dtypes: the dtypes that it can train.
      base: the class that is extended, None if none is.
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
      oracle: called with a variable's value and its name, returns the `oracles.Oracle`.
      ulps: how many units in the last place one step of the composed rule or the kernel may be
        off the oracle, with the reason in a comment beside it.
      original: the `Original`, None if `tf.contrib.opt` has none.
      regrouped: whether rows are updated by TensorFlow's own arithmetic, whose products graph
        rewriting regroups; in 16 bits otherwise in a `tf.function` than in a Session.
    """

    optimizer: type
    arguments: dict
    oracle: Callable
    ulps: float
    original: Optional[Original] = None
    regrouped: bool = False

    def make(self, global_step, **overrides):
        """Returns a new optimizer that goes by `global_step`, if its constructor takes it."""
        return self.construct(self.optimizer, global_step, **overrides)

    def construct(self, optimizer, global_step, **overrides):
        """Returns a new optimizer of another class with the case's arguments."""
        arguments = dict(self.arguments, **overrides)
        if goes_by_step(optimizer):
            arguments["global_step"] = global_step
        return optimizer(**arguments)

    def make_composed(self, global_step):
        """Returns a new optimizer that runs its rule, not a fused kernel."""
        optimizer = self.make(global_step)
        optimizer.use_fused_kernels = False
        return optimizer


def goes_by_step(optimizer):
    """Whether an optimizer's constructor takes a global step."""
    return "global_step" in inspect.signature(optimizer.__init__).parameters
