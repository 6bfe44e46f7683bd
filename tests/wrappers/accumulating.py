"""Helpers for tests of GradientAccumulationOptimizer.

A training that accumulates the gradients of small batches must equal a training with large batches.
The gradient of a large batch is the mean of the gradients of small batches.
"""

import functools

import numpy as np
import tensorflow as tf

from legacy_opt import (
    AdagradDecayOptimizer,
    ClipByGlobalNormOptimizer,
    GradientAccumulationOptimizer,
    LazyAdamOptimizer,
    MultiOptimizer,
)
from tests.support import problems, running

v1 = tf.compat.v1

# The Sessions run without graph rewriting, because it would regroup products differently in
# different graphs.
WAYS = dict(
    running.WAYS,
    **{
        "session-ref": functools.partial(running.session, config=running.AS_WRITTEN),
        "session-resource": functools.partial(
            running.session, use_resource=True, config=running.AS_WRITTEN
        ),
        "function": functools.partial(running.function, autograph=False),
    },
)
ROWS = ("ids", "rows")
BATCHES = 3  # not a power of two, so multiplying by 1/3 and dividing by 3 round differently


def clipped_and_routed(step):
    names = ["matrix", "table", "cube"]
    adam, momentum = v1.train.AdamOptimizer(0.1, epsilon=1e-3), v1.train.MomentumOptimizer(0.1, 0.9)
    decaying = AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2)
    routes = [(momentum, "vector|bias"), (decaying, "cube"), (adam, "|".join(names[:2]))]
    return ClipByGlobalNormOptimizer(MultiOptimizer(routes, v1.train.FtrlOptimizer(0.1)), 0.5)


INNER = {
    "SGD": lambda step: v1.train.GradientDescentOptimizer(0.1),
    "Momentum": lambda step: v1.train.MomentumOptimizer(0.1, 0.9),
    "Adam": lambda step: v1.train.AdamOptimizer(0.1, epsilon=1e-3),
    "AdagradDecay": lambda step: AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2),
    "LazyAdam": lambda step: LazyAdamOptimizer(0.1, epsilon=1e-3),
    "accumulate(clip(multi))": clipped_and_routed,
}


def accumulated(make, steps=BATCHES, **arguments):
    return lambda step: GradientAccumulationOptimizer(make(step), steps, **arguments)


def small_problem(kind, dtype, name):
    """Returns a problem of a few batches, with two variables, or all for a MultiOptimizer."""
    problem = problems.make(kind, dtype, steps=2 * BATCHES)
    if "multi" in name:
        return problem
    return only(problem, ["matrix", "scalar"] if kind == "dense" else ["table", "bias"])


def only(problem, names):
    """Returns the problem with only the named variables."""
    return problem._replace(
        values={name: problem.values[name] for name in names},
        gradients=[{name: step[name] for name in names} for step in problem.gradients],
        sparse=tuple(name for name in problem.sparse if name in names),
    )


def large_batches(problem, batches=BATCHES):
    """Returns the problem after replacing each group of `batches` gradients by the group's mean."""
    gradients = []
    for first in range(0, problem.steps, batches):
        part = problem.gradients[first : first + batches]
        gradients.append({name: mean([step[name] for step in part]) for name in part[0]})
    return problem._replace(gradients=gradients)


def mean(gradients):
    dtype = getattr(gradients[0], "values", gradients[0]).dtype
    wide = np.float64 if dtype == np.float64 else np.float32

    def divided(total):
        return np.asarray(np.asarray(total, wide) / wide(len(gradients)), dtype)

    if isinstance(gradients[0], problems.Rows):
        values = divided(np.concatenate([gradient.values for gradient in gradients]))
        return problems.Rows(values, np.concatenate([gradient.ids for gradient in gradients]))
    total = np.zeros_like(gradients[0], wide)
    for gradient in gradients:
        total = total + gradient
    return divided(total)


def assert_as_large_batches(actual, expected, start, batches=BATCHES):
    """Asserts that each group of `batches` steps changes variables once, as a large batch does."""
    before = start
    for number, values in enumerate(actual.steps):
        if (number + 1) % batches == 0:
            before = expected.steps[number // batches]
        for name, value in before.items():
            running.assert_equal(values[name], value, f"{name} after batch {number}")
    for key, slot in expected.slots.items():
        running.assert_equal(actual.slots[key], slot, str(key))
    added = {name for _, name in set(actual.slots) - set(expected.slots)}
    assert added <= {"gradient_sum", "gradient_ids", "gradient_rows"} and added


def assert_equal(actual, expected, only=None):
    """Asserts that the arrays in two dicts are equal bit for bit.

    If `only` is given, only the arrays with the keys in `only` are compared.
    """
    assert only is not None or set(actual) == set(expected)
    for key in only or expected:
        running.assert_equal(np.asarray(actual[key]), np.asarray(expected[key]), key)
