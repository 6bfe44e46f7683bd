"""Wrappers (v1 optimizers that contain optimizers) for tests of the Keras 2 and 3 bridges."""

from typing import Callable, NamedTuple, Tuple

import tensorflow as tf

from legacy_opt import (
    AdagradDecayOptimizer,
    AdamGSOptimizer,
    ClipByGlobalNormOptimizer,
    GradientAccumulationOptimizer,
    LookaheadOptimizer,
    MovingAverageOptimizer,
    MultiOptimizer,
    MultitaskOptimizerWrapper,
    SWAOptimizer,
)
from tests.support import running
from tests.support.keras import keras_ways

v1 = tf.compat.v1.train
DENSE = ("matrix", "vector")
FEW = ("matrix", "table")
# Patterns that match the names of variables both in `keras_ways.mixed` and in Keras layers.
BIASES, TABLES = ".*(vector|bias)", "table|cube|embedding"


class Wrapper(NamedTuple):
    """A wrapper around one or more optimizers.

    Attributes:
      make: a function from the global step to a new wrapper. With the bridge, which uses Keras'
        `iterations`, the global step is None.
      only: the names of the variables to train.
      batches: the number of batches after which the wrapper increments the global step.
    """

    make: Callable
    only: Tuple[str, ...]
    batches: int = 1


def adam():
    return v1.AdamOptimizer(0.05, epsilon=1e-3)


def multi(step):
    decaying = AdagradDecayOptimizer(0.1, step, accumulator_decay_step=3)
    routes = [(v1.FtrlOptimizer(0.1, l1_regularization_strength=0.02), BIASES), (decaying, TABLES)]
    return MultiOptimizer(routes, default=adam())


def nested(step):
    by_step = AdamGSOptimizer(step, 0.05)
    decaying = AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2)
    inside = MultiOptimizer([(decaying, BIASES)], by_step)
    return GradientAccumulationOptimizer(ClipByGlobalNormOptimizer(inside, 1.0), 3)


def accumulated_apart(step):
    decaying = AdagradDecayOptimizer(0.1, step, accumulator_decay_step=3)
    routes = [(GradientAccumulationOptimizer(decaying, 3), BIASES)]
    return MultiOptimizer(routes, GradientAccumulationOptimizer(adam(), 2))


def averaged(step):
    count = tf.Variable(0, dtype=tf.int64, trainable=False) if step is None else step
    return MovingAverageOptimizer(v1.MomentumOptimizer(0.1, 0.9), 0.9, num_updates=count)


def snapshots_of_lookahead(step):
    return SWAOptimizer(LookaheadOptimizer(multi(step), 2, 0.3), 1, 2)


WRAPPERS = {
    "clip(Adam)": Wrapper(lambda step: ClipByGlobalNormOptimizer(adam(), 1.0), FEW),
    "accumulate(clip(multi))": Wrapper(nested, DENSE, 3),
    "multi(accumulate, accumulate)": Wrapper(accumulated_apart, DENSE),
    "average(Momentum)": Wrapper(averaged, FEW),
    "SWA(lookahead(multi))": Wrapper(snapshots_of_lookahead, ("matrix", "vector", "table")),
    "lagging average(Adam)": Wrapper(
        lambda step: MovingAverageOptimizer(adam(), 0.9, sequential_update=False), FEW
    ),
    "multitask(clip(multi))": Wrapper(
        lambda step: MultitaskOptimizerWrapper(ClipByGlobalNormOptimizer(multi(step), 1.0)),
        ("matrix", "vector", "table"),
    ),
}
STEPS = 6


def task(name, way, dtype):
    """Returns the `Problem` or `Model` for a wrapper and a `keras_ways.Way`."""
    wrapper = WRAPPERS[name]
    made = way.task(dtype, wrapper.only, STEPS)
    if isinstance(made, keras_ways.Model):
        return made._replace(batches_a_step=wrapper.batches)
    gradients = [dict(step) for step in made.gradients]
    for step in gradients[2:5]:  # MultitaskOptimizerWrapper does nothing for zero gradients
        step["matrix"] = step["matrix"] * 0
    return made._replace(gradients=gradients, batches=wrapper.batches)


def assert_equal_in_a_session(name, way, dtype):
    """Asserts that a bridged wrapper equals the same wrapper in a Session, bit for bit."""
    made = task(name, way, dtype)
    expected = way.reference(made, WRAPPERS[name].make)
    actual = way.run(made, WRAPPERS[name].make)
    _, shared = _divided(actual)
    slots, shared_in_v1 = _divided(expected)
    # Non-slot variables may have other names with Keras than in a Session, so their values are
    # compared without names. The Keras optimizer may have more slots than the optimizer in the
    # Session. These additional slots are not compared.
    assert sorted(map(repr, shared)) == sorted(map(repr, shared_in_v1))
    actual = actual._replace(slots={key: actual.slots[key] for key in slots})
    running.assert_same(actual, expected._replace(slots=slots))


def _divided(trace):
    """Returns a trace's slots, and its non-slot variables as pairs (step, value)."""
    is_shared = lambda key: len(key) == 3 and key[1] == "shared"  # noqa: E731
    slots = {key: value for key, value in trace.slots.items() if not is_shared(key)}
    shared = [(key[0], float(value)) for key, value in trace.slots.items() if is_shared(key)]
    return slots, shared
