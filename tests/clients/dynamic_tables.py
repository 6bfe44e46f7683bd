"""Trains dynamic embedding tables of TensorFlow Recommenders Addons, and ordinary tables.

A dynamic table is a hash table. A lookup creates a variable with the rows that a training step
uses.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

import legacy_opt

v1 = tf.compat.v1
ROWS, DIM, STEPS = 9, 4, 6
START = np.random.RandomState(1).normal(size=(ROWS, DIM)).astype(np.float32)
NUMBERS = itertools.count()


def decayed(optimizer_class, **arguments):
    """Returns a function that creates an optimizer with weight decay."""
    extended = legacy_opt.extend_with_decoupled_weight_decay(optimizer_class)
    return lambda: extended(weight_decay=0.01, learning_rate=0.1, **arguments)


def rule_only(make):
    """Returns a function that creates an optimizer which uses no fused kernels."""

    def made():
        optimizer = make()
        optimizer.use_fused_kernels = False
        return optimizer

    return made


BY_ROWS = {  # optimizers that compute each row of a table from this row of the gradient
    "LazyAdamOptimizer": lambda: legacy_opt.LazyAdamOptimizer(0.1),
    "LazyAdamGSOptimizer": lambda: legacy_opt.LazyAdamGSOptimizer(None, 0.1),
    "AdaMaxOptimizer": lambda: legacy_opt.AdaMaxOptimizer(0.1),
    "AddSignOptimizer": lambda: legacy_opt.AddSignOptimizer(0.1),
    "PowerSignOptimizer": lambda: legacy_opt.PowerSignOptimizer(0.1),
    "RegAdagradOptimizer": lambda: legacy_opt.RegAdagradOptimizer(0.1),
    "DiffGradOptimizer": lambda: legacy_opt.DiffGradOptimizer(0.1),
    "LionOptimizer": lambda: legacy_opt.LionOptimizer(0.1),
    "COCOBOptimizer": lambda: legacy_opt.COCOBOptimizer(),
    "MomentumWOptimizer": lambda: legacy_opt.MomentumWOptimizer(0.01, 0.1, 0.9),
}
OF_ALL_ROWS = {  # optimizers that change rows that are not in the gradient, or compute norms
    "AdamGSOptimizer": lambda: legacy_opt.AdamGSOptimizer(None, 0.1),
    "AdamWOptimizer": lambda: legacy_opt.AdamWOptimizer(0.01, 0.1),
    "NadamOptimizer": lambda: legacy_opt.NadamOptimizer(0.1),
    "RectifiedAdamOptimizer": lambda: legacy_opt.RectifiedAdamOptimizer(0.1),
    "AdaBeliefOptimizer": lambda: legacy_opt.AdaBeliefOptimizer(0.1),
    "YogiOptimizer": lambda: legacy_opt.YogiOptimizer(0.1),
    "LARSOptimizer": lambda: legacy_opt.LARSOptimizer(0.1),
    "LAMBOptimizer": lambda: legacy_opt.LAMBOptimizer(0.1, 0.01),
    "ConditionalGradientOptimizer": lambda: legacy_opt.ConditionalGradientOptimizer(0.9, 3.0),
    "AdamWeightDecayOptimizer": lambda: legacy_opt.AdamWeightDecayOptimizer(0.1, 0.01),
    "AdafactorOptimizer(factored=False)": lambda: legacy_opt.AdafactorOptimizer(factored=False),
}
COMBINED = {
    "LazyAdam without kernels": rule_only(BY_ROWS["LazyAdamOptimizer"]),
    "LazyAdam with decay": decayed(legacy_opt.LazyAdamOptimizer),
    "LazyAdam with decay, without kernels": rule_only(decayed(legacy_opt.LazyAdamOptimizer)),
}
WRAPPED = {
    "ClipByNormOptimizer": lambda inner: legacy_opt.ClipByNormOptimizer(inner, 0.5),
    "ClipByGlobalNormOptimizer": lambda inner: legacy_opt.ClipByGlobalNormOptimizer(inner, 0.5),
    "ClipByValueOptimizer": lambda inner: legacy_opt.ClipByValueOptimizer(inner, -0.1, 0.1),
    "LossScaleOptimizer": lambda inner: legacy_opt.LossScaleOptimizer(
        inner, legacy_opt.FixedLossScaleManager(64.0)
    ),
    "MultiOptimizer": lambda inner: legacy_opt.MultiOptimizer([(inner, ".")]),
    "MultitaskOptimizerWrapper": lambda inner: legacy_opt.MultitaskOptimizerWrapper(inner),
}
REFUSED = {  # the optimizer, and the expected part of the error message
    "AdagradDecayOptimizer": (
        lambda: legacy_opt.AdagradDecayOptimizer(0.1, None),
        "slot 'accumulator_decay_power' has dtype int64",
    ),
    "AdagradDecayOptimizerV2": (
        lambda: legacy_opt.AdagradDecayOptimizerV2(0.1, None),
        "slot 'accumulator_decay_power' does not have the shape",
    ),
    "AdamAsyncOptimizer": (
        lambda: legacy_opt.AdamAsyncOptimizer(0.1),
        "slot 'beta1_power' does not have the shape",
    ),
    "NovoGradOptimizer": (
        lambda: legacy_opt.NovoGradOptimizer(0.1),
        "slot 'v' does not have the shape",
    ),
    "AdafactorOptimizer": (
        lambda: legacy_opt.AdafactorOptimizer(),
        "slot 'vr' does not have the shape",
    ),
    "ShampooOptimizer": (
        lambda: legacy_opt.ShampooOptimizer(0),
        "slot 'Gbar_0' does not have the shape",
    ),
}
REFUSED_WRAPPERS = {
    "GradientAccumulationOptimizer": lambda inner, _: legacy_opt.GradientAccumulationOptimizer(
        inner, 2
    ),
    "LookaheadOptimizer": lambda inner, _: legacy_opt.LookaheadOptimizer(inner),
    "SWAOptimizer": lambda inner, _: legacy_opt.SWAOptimizer(inner),
    "MovingAverageOptimizer": lambda inner, _: legacy_opt.MovingAverageOptimizer(inner),
    "VariableClippingOptimizer": lambda inner, variable: legacy_opt.VariableClippingOptimizer(
        inner, [(variable, [1])], 0.5
    ),
}


def batches(all_rows):
    """Returns a list of pairs: the ids of a step, each once, and a factor of each looked-up value.

    Args:
      all_rows: whether each step has all rows in order. If not, some rows occur in late steps only.
    """
    random, found = np.random.RandomState(2), []
    for step in range(STEPS):
        rows = random.permutation(ROWS - STEPS + step + 1)[:4]
        ids = np.arange(ROWS) if all_rows else rows
        found.append((ids, random.normal(size=(len(ids), DIM)).astype(np.float32)))
    return found


def loss_of(rows, factors):
    return tf.reduce_sum(tf.square(rows) * tf.square(factors) + tf.sin(rows) * factors)


def new_table(**arguments):
    name = f"table_{next(NUMBERS)}"
    return de.get_variable(name, dim=DIM, initializer=0.0, **arguments)


def filling(start):
    """Returns the ids and values of rows to insert into a table, those that are not zero."""
    ids = np.flatnonzero(np.any(start, axis=1))
    return tf.constant(ids, tf.int64), tf.constant(start[ids])


def sorted_rows(keys, values):
    return values[np.argsort(keys)]


def in_session(make, all_rows, dynamic, start=START, ids_shape=(None,), **arguments):
    """Trains a table in a Session. Returns its rows."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        ids = v1.placeholder(tf.int64, ids_shape)
        factors = v1.placeholder(tf.float32, [None, DIM])
        if dynamic:
            table = new_table(**arguments)
            fill = table.upsert(*filling(start))
            rows = de.embedding_lookup(table, ids, name="rows")
        else:
            table, fill = v1.get_variable("table", initializer=start, use_resource=True), tf.no_op()
            rows = table if all_rows else tf.gather(table, ids)
        train = make().minimize(loss_of(rows, factors), global_step=step)
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            session.run(fill)
            for batch in batches(all_rows):
                session.run(train, dict(zip((ids, factors), batch)))
            return sorted_rows(*session.run(table.export())) if dynamic else session.run(table)


def eagerly(make, all_rows, dynamic, start=START, decorate=lambda function: function):
    """Trains a table in eager execution or in a `tf.function`. Returns its rows."""
    v1.get_default_graph().clear_collection(v1.GraphKeys.GLOBAL_STEP)
    global_step = v1.train.get_or_create_global_step()
    optimizer = make()
    if dynamic:
        table = new_table()
        table.upsert(*filling(start))
    else:
        table = tf.Variable(start)

    @decorate
    def step(ids, factors):
        with tf.GradientTape() as tape:
            if dynamic:
                rows = de.embedding_lookup(table, ids, name="rows")
            else:
                rows = tf.identity(table) if all_rows else tf.gather(table, ids)
            loss = loss_of(rows, factors)
        variable = table.get_trainable_by_name("rows") if dynamic else table
        optimizer.apply_gradients([(tape.gradient(loss, variable), variable)], global_step)

    for ids, factors in batches(all_rows):
        step(tf.constant(ids, tf.int64), tf.constant(factors))
    return sorted_rows(*[each.numpy() for each in table.export()]) if dynamic else table.numpy()


def in_function(make, all_rows, dynamic, start=START):
    shapes = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, DIM], tf.float32)
    return eagerly(make, all_rows, dynamic, start, tf.function(input_signature=shapes))


def check(trained, make, all_rows, inner=None):
    """Compares a dynamic embedding table with an ordinary table.

    Args:
      trained: `in_session`, `eagerly` or `in_function`.
      make: a function that creates an optimizer.
      all_rows: see `batches`.
      inner: a function that creates an optimizer, which is passed to `make`.
    """

    def made(wrap):
        return wrap(make()) if inner is None else make(wrap(inner()))

    expected = trained(lambda: made(lambda each: each), all_rows, dynamic=False)
    found = trained(lambda: made(de.DynamicEmbeddingOptimizer), all_rows, dynamic=True)
    assert np.all(np.any(expected != START, axis=1))  # every row has been trained
    return found, expected


MODES = {"session": in_session, "eager": eagerly, "function": in_function}
each_mode = pytest.mark.parametrize("mode", sorted(MODES))
