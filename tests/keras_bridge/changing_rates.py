"""Trains v1 optimizers in Sessions with hyperparameters that change between training steps.

Tests compare Keras optimizers made by `to_keras` with these trainings.
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import AdagradDecayOptimizer
from tests.support import running
from tests.support.keras import keras_models as models

v1 = tf.compat.v1


PROBLEM = models.problem()


RATES = np.array([0.3, 0.3, 0.1, 0.1, 0.1, 0.4, 0.05, 0.05, 0.2, 0.2, 0.2, 0.01], "f")


MAKERS = {
    "AdagradDA": lambda rate, step=None: v1.train.AdagradDAOptimizer(rate, step),
    "AdagradDecay": lambda rate, step=None: AdagradDecayOptimizer(rate, step, 0.25, 3, 0.7),
    "Adam": lambda rate, step=None: v1.train.AdamOptimizer(rate),
    "Ftrl": lambda rate, step=None: v1.train.FtrlOptimizer(rate),
    "GradientDescent": lambda rate, step=None: v1.train.GradientDescentOptimizer(rate),
    "Momentum": lambda rate, step=None: v1.train.MomentumOptimizer(rate, 0.9),
}


def session(name, rates=RATES, problem=PROBLEM, config=None):
    """Trains in a Session with the learning rate `rates[number]` in step `number`."""
    made = []

    def make(step):
        # Ftrl's constructor accepts only a number, so a variable replaces its attribute afterwards.
        rate = tf.compat.v2.Variable(np.float32(0.0), trainable=False)
        made.append(rate)
        optimizer = MAKERS[name](1.0, step)
        vars(optimizer).update(
            {key: rate for key in ("_learning_rate", "_lr") if key in vars(optimizer)}
        )
        return optimizer

    def load(sess, optimizer, variables, number):
        made[0].load(rates[number], sess)

    return running.session(problem, make, True, between=load, config=config)


DECAYS = {
    "exponential": lambda step: v1.train.exponential_decay(0.3, step, 3, 0.5),
    "staircase": lambda step: v1.train.exponential_decay(0.3, step, 3, 0.5, staircase=True),
    "polynomial": lambda step: v1.train.polynomial_decay(0.3, step, 8, 0.01, power=0.5),
    "piecewise": lambda step: v1.train.piecewise_constant(step, [2, 6], [0.3, 0.1, 0.05]),
    "inverse time": lambda step: v1.train.inverse_time_decay(0.3, step, 2, 0.4),
    "natural exp": lambda step: v1.train.natural_exp_decay(0.3, step, 2, 0.4),
    "cosine": lambda step: v1.train.cosine_decay(0.3, step, 9),
    "linear cosine": lambda step: v1.train.linear_cosine_decay(0.3, step, 9),
}


# Optimizers with a decay as another hyperparameter than the learning rate.
DECAYING = {
    "Momentum": lambda decay: v1.train.MomentumOptimizer(0.1, decay),
    "RMSProp": lambda decay: v1.train.RMSPropOptimizer(0.1, decay),
    "MomentumW": lambda decay: legacy_opt.MomentumWOptimizer(decay, 0.1, 0.9),
    "AdamWeightDecay": lambda decay: legacy_opt.AdamWeightDecayOptimizer(0.1, decay),
    "clipped GradientDescent": lambda decay: legacy_opt.ClipByNormOptimizer(
        v1.train.GradientDescentOptimizer(0.1), decay
    ),
}


# Keys: names of hyperparameters. Values: a function from the hyperparameter to the optimizer, two
# values of the hyperparameter, and the name of the optimizer's attribute for the hyperparameter.
SETTABLE = {
    "momentum": (lambda value: v1.train.MomentumOptimizer(0.1, value), 0.9, 0.5, "_momentum"),
    "beta1": (lambda value: v1.train.AdamOptimizer(0.1, value), 0.9, 0.5, "_beta1"),
    "rho": (lambda value: v1.train.AdadeltaOptimizer(0.8, value), 0.95, 0.5, "_rho"),
    "decay": (lambda value: v1.train.RMSPropOptimizer(0.1, value), 0.9, 0.5, "_decay"),
}


def with_change(argument):
    """Trains in a Session with a hyperparameter that changes before the seventh step."""
    make, first, second, attribute = SETTABLE[argument]
    made = []

    def make_variable(step):
        optimizer = make(first)
        made.append(tf.compat.v2.Variable(np.float32(first), trainable=False))
        prepare = optimizer._prepare

        def with_the_variable():
            vars(optimizer)[attribute] = made[0]
            prepare()
            vars(optimizer)[attribute] = first

        optimizer._prepare = with_the_variable
        return optimizer

    def load(sess, optimizer, variables, number):
        made[0].load(np.float32(first if number < 6 else second), sess)

    return running.session(PROBLEM, make_variable, True, between=load)


NOT_READ_AGAIN = pytest.mark.parametrize(
    "name, argument, value",
    [
        ("Adagrad", "initial_accumulator_value", 0.5),
        ("AdagradDecay", "accumulator_decay_step", 5),
        ("Ftrl", "l2_shrinkage_regularization_strength", 0.5),
        ("Momentum", "use_nesterov", False),
        ("RMSProp", "centered", False),
    ],
)
