"""A table of all public optimizers and wrappers, and a loss with given gradients."""

import tensorflow as tf

import legacy_opt
from tests.support.cases import CASES, one_of_each_class
from tests.support.wrapped import WRAPPERS, multi

v1 = tf.compat.v1


def _clipped_variables(step, variables):
    clipped = [(variables[name], [1]) for name in ("matrix", "table")]
    return legacy_opt.VariableClippingOptimizer(multi(step), clipped, max_norm=1.0)


def _of_step(make):
    return lambda step, variables: make(step)


# {name: function that returns an optimizer}. The arguments are the global step and a dict of the
# variables by name.
OPTIMIZERS = {
    **{CASES[name].optimizer.__name__: _of_step(CASES[name].make) for name in one_of_each_class()},
    **{
        name.replace("Optimizer", "") + "Optimizer": _of_step(make)
        for name, make in WRAPPERS.items()
    },
    "ClipByNormOptimizer": lambda step, _: legacy_opt.ClipByNormOptimizer(multi(step), 0.5),
    "ClipByValueOptimizer": lambda step, _: legacy_opt.ClipByValueOptimizer(multi(step), -0.5, 0.5),
    "VariableClippingOptimizer": _clipped_variables,
    "LossScaleOptimizer": lambda step, _: legacy_opt.LossScaleOptimizer(
        v1.train.AdamOptimizer(0.1, epsilon=1e-3), legacy_opt.FixedLossScaleManager(64.0)
    ),
    "MultitaskOptimizerWrapper": lambda step, _: legacy_opt.MultitaskOptimizerWrapper(
        v1.train.AdamOptimizer(0.1, epsilon=1e-3)
    ),
}


def loss_of(problem, variables, gradients):
    """Returns a loss whose gradients are exactly the given tensors."""
    terms = []
    for name, variable in variables.items():
        gradient = gradients[name]
        if name in problem.sparse:
            values, ids = gradient
            terms.append(tf.reduce_sum(tf.gather(variable, ids) * values))
        else:
            terms.append(tf.reduce_sum(variable * gradient))
    return tf.add_n(terms)
