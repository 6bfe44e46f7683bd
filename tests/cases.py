"""What the shared suite has to know of each optimizer; a public class without a case fails it."""

import functools
from typing import Any, Callable, NamedTuple

import tensorflow as tf

import legacy_opt
from tests import oracles


class Case(NamedTuple):
    """One optimizer with one set of arguments.

    Attributes:
      optimizer: the class.
      arguments: its keyword arguments, without `global_step`.
      oracle: called with a variable's value, returns the `oracles.Oracle`.
      ulps: how many units in the last place one step of the composed rule or the kernel may be
        off the oracle, with the reason in a comment beside it.
    """

    optimizer: type
    arguments: dict
    oracle: Callable
    ulps: float

    def make(self, global_step, **overrides):
        """Returns a new optimizer that goes by `global_step`."""
        arguments = dict(self.arguments, **overrides)
        if self.optimizer.uses_global_step:
            arguments["global_step"] = global_step
        return self.optimizer(**arguments)

    def make_composed(self, global_step):
        """Returns a new optimizer that runs its rule, not a fused kernel."""
        optimizer = self.make(global_step)
        optimizer.use_fused_kernels = False
        return optimizer


def public_optimizers():
    """Returns every optimizer class that the package offers."""
    found = [getattr(legacy_opt, name) for name in legacy_opt.__all__]
    return [
        item
        for item in found
        if isinstance(item, type)
        and issubclass(item, tf.compat.v1.train.Optimizer)
        and item is not legacy_opt.RuleOptimizer
    ]


def _adagrad_decay(optimizer, layout, **arguments):
    oracle = functools.partial(oracles.AdagradDecay, layout=layout, **arguments)
    # Some kernels take 1/sqrt as an approximation with one Newton step, and may fuse a product
    # and a sum: a few units in the last place of each step.
    return Case(optimizer, arguments, oracle, ulps=4)


_DECAYING = {
    "learning_rate": 0.3,
    "initial_accumulator_value": 0.2,
    "accumulator_decay_step": 4,
    "accumulator_decay_rate": 0.5,
}

CASES: Any = {
    "AdagradDecay": _adagrad_decay(legacy_opt.AdagradDecayOptimizer, 1, **_DECAYING),
    "AdagradDecay-never": _adagrad_decay(legacy_opt.AdagradDecayOptimizer, 1, learning_rate=0.3),
    "AdagradDecayV2": _adagrad_decay(legacy_opt.AdagradDecayOptimizerV2, 2, **_DECAYING),
}
