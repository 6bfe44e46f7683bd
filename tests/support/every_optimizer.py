"""Tables of all optimizers and wrappers, and of those of TensorFlow; a loss of given gradients."""

import inspect

import tensorflow as tf

import legacy_opt
from tests.support.cases import CASES, one_of_each_class
from tests.support.keras.keras_models import V1_OPTIMIZERS
from tests.support.wrapped import WRAPPERS, multi

v1 = tf.compat.v1


def _of_step(make):
    return lambda step, variables: make(step)


def _of_tensorflow(make):
    takes_step = "step" in inspect.signature(make).parameters
    return lambda step, variables: make(step=step) if takes_step else make()


def _clipped_variables(step, variables):
    clipped = []
    for name in ("matrix", "table"):
        parts = variables[name] if isinstance(variables[name], list) else [variables[name]]
        clipped += [(part, [1]) for part in parts]
    return legacy_opt.VariableClippingOptimizer(multi(step), clipped, max_norm=1.0)


# {name: function that returns an optimizer}. The arguments are the global step and a dict of the
# variables, or lists of their parts, by name: "matrix", "table" and maybe others.
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
# TensorFlow's own optimizers, by names such as "tf.Adam", with the same arguments.
OF_TENSORFLOW = {
    f"tf.{name}": _of_tensorflow(make)
    for name, make in V1_OPTIMIZERS.items()
    if not hasattr(legacy_opt, name + "Optimizer")
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
