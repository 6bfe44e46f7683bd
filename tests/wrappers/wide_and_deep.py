"""Trains a wide & deep model with a MultiOptimizer."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import GlobalStepWarning, MultiOptimizer
from tests.support import running

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def no_global_step_warnings():
    """Turns GlobalStepWarning into an error; tests that increment the global step must not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GlobalStepWarning)
        yield


FOUR = {
    "Ftrl": lambda step: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "Decay": lambda step: legacy_opt.AdagradDecayOptimizer(
        0.1, step, accumulator_decay_step=3, accumulator_decay_rate=0.5
    ),
    "Adam": lambda step: v1.train.AdamOptimizer(0.1),
    "Lazy": lambda step: legacy_opt.LazyAdamOptimizer(0.1),
}


def wide_and_deep():
    """Creates a model in which the gradients depend on all variables; returns its loss."""
    random = np.random.RandomState(0)
    ids = v1.placeholder_with_default(np.int64([1, 5, 5, 0]), [None], "ids")

    def variable(name, *shape):
        # Resource variables, because a ref variable might be updated before the computation of
        # another variable's gradient reads it.
        value = random.randn(*shape).astype("f")
        return v1.get_variable(name, initializer=value, use_resource=True)

    with v1.variable_scope("wide"):
        logits = tf.gather(variable("weights", 6), ids)
    with v1.variable_scope("deep"):
        embedded = tf.gather(variable("embeddings", 6, 3), ids)
        hidden = tf.tanh(tf.matmul(embedded, variable("kernel", 3, 2)))
        logits += tf.reduce_sum(hidden, axis=1)
    return tf.reduce_mean(tf.square(logits - 1.0))


def for_wide_and_deep(step):
    return MultiOptimizer(
        [(FOUR["Ftrl"](step), "wide"), (FOUR["Decay"](step), "deep/emb")], FOUR["Adam"](step)
    )


def in_a_session(steps):
    """Trains wide & deep in a plain Session; returns all variables by name."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        train_op = for_wide_and_deep(step).minimize(wide_and_deep(), global_step=step)
        variables = {variable.op.name: variable for variable in v1.global_variables()}
        return running.after(train_op, variables, steps)
