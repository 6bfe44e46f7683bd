"""What is measured: one table entry per optimizer, with the goals it is held to."""

from typing import Any, Callable, NamedTuple

import tensorflow as tf

import legacy_opt

v1 = tf.compat.v1

LEARNING_RATE = 0.01

#: TensorFlow's own optimizers; each is called with the global step, like `Entry.make`.
STOCK = {
    "stock Adagrad": lambda step: v1.train.AdagradOptimizer(LEARNING_RATE),
}


class Entry(NamedTuple):
    """One optimizer to measure.

    Attributes:
      name: what the report calls it.
      make: called with the global step variable, returns a new optimizer.
      stock: the key in `STOCK` of what it is compared with.
      goals: a dict from workload name to the largest ratio to stock that counts as a hit; None
        measures for information.
      growth: the largest ratio of its own step on W4 to its own step on W3 that counts as a hit;
        None if that is not measured.
    """

    name: str
    make: Callable[[Any], Any]
    stock: str
    goals: dict
    growth: Any = None


class AdagradDecayOneByOne(legacy_opt.AdagradDecayOptimizer):
    """The form that bridges and distribution strategies use: each variable decides by itself."""

    def prepare_step(self, grads_and_vars):
        return {}


def _adagrad_decay(optimizer=legacy_opt.AdagradDecayOptimizer, due=False, composed=False):
    """Returns an `Entry.make` for AdagradDecay.

    Args:
      optimizer: the class.
      due: decay in every step (a period of one step) or never.
      composed: run the rule instead of TensorFlow's kernel.
    """

    def make(step):
        period = 1 if due else 10**9
        made = optimizer(LEARNING_RATE, step, accumulator_decay_step=period)
        made.use_fused_kernels = not composed
        return made

    return make


_V2 = legacy_opt.AdagradDecayOptimizerV2
_ADAGRAD = "stock Adagrad"
_GOALS = {"W1": 1.05, "W2": 1.40, "W3": 1.20, "W4": 1.30}

ENTRIES = [
    # Twice the same: how far from 1 the ratios of this machine go by chance.
    Entry("stock Adagrad again", STOCK[_ADAGRAD], _ADAGRAD, {"W1": None, "W2": None, "W3": None}),
    Entry("AdagradDecay", _adagrad_decay(), _ADAGRAD, _GOALS, growth=1.15),
    Entry("AdagradDecayV2", _adagrad_decay(_V2), _ADAGRAD, _GOALS, growth=1.15),
    Entry(
        "AdagradDecay, all due",
        _adagrad_decay(due=True),
        _ADAGRAD,
        {"W1": 2.8, "W2": None, "W3": 1.20},
    ),
    Entry("AdagradDecayV2, all due", _adagrad_decay(_V2, due=True), _ADAGRAD, {"W3": 1.20}),
    Entry("AdagradDecay, one by one", _adagrad_decay(AdagradDecayOneByOne), _ADAGRAD, {"W2": 2.4}),
    Entry(
        "AdagradDecay, composed",
        _adagrad_decay(composed=True),
        _ADAGRAD,
        {"W1": None, "W2": None, "W3": None},
    ),
]

MAKERS = dict(STOCK, **{entry.name: entry.make for entry in ENTRIES})
