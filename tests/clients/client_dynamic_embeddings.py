"""Tests that dynamic embedding tables train like ordinary tables."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

import legacy_opt
from tests.clients.dynamic_tables import (
    BY_ROWS,
    COMBINED,
    MODES,
    OF_ALL_ROWS,
    ROWS,
    START,
    WRAPPED,
    check,
    each_mode,
    filling,
    in_session,
    loss_of,
    new_table,
    rule_only,
    sorted_rows,
)

v1 = tf.compat.v1


@each_mode
@pytest.mark.parametrize("name", [*BY_ROWS, *OF_ALL_ROWS, *COMBINED])
def test_a_table_of_which_each_step_looks_up_all_rows_has_the_bits_of_a_variable(mode, name):
    make = {**BY_ROWS, **OF_ALL_ROWS, **COMBINED}[name]
    np.testing.assert_array_equal(*check(MODES[mode], make, all_rows=True))


@each_mode
@pytest.mark.parametrize("name", [*BY_ROWS, *COMBINED])
def test_a_table_of_which_steps_look_up_some_rows_trains_like_sparse_gradients(mode, name):
    make = {**BY_ROWS, **COMBINED}[name]
    # The gradient of a dynamic embedding is dense. For dense gradients, some optimizers use fused
    # kernels, which round differently.
    np.testing.assert_allclose(*check(MODES[mode], make, all_rows=False), rtol=2e-6, atol=2e-7)


@each_mode
@pytest.mark.parametrize("name", ["LazyAdamOptimizer", "AdaMaxOptimizer", "RegAdagradOptimizer"])
def test_without_kernels_sparse_gradients_give_the_same_bits(mode, name):
    found, expected = check(MODES[mode], rule_only(BY_ROWS[name]), all_rows=False)
    np.testing.assert_array_equal(found, expected)


@each_mode
@pytest.mark.parametrize("name", sorted(WRAPPED))
def test_a_wrapper_around_the_optimizer_of_a_table(mode, name):
    inner = rule_only(BY_ROWS["LazyAdamOptimizer"])
    found, expected = check(MODES[mode], WRAPPED[name], False, inner)
    if name == "LossScaleOptimizer" and mode == "session":
        # Only `compute_gradients` makes the gradients of an ordinary table dense. Scaling by a
        # power of two changes no bits.
        expected = MODES[mode](inner, False, dynamic=False)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("option", ["static_ids", "bp_v2"])
@pytest.mark.parametrize("name", ["LazyAdamOptimizer", "DiffGradOptimizer"])
def test_ids_of_a_static_shape_and_tables_that_add_differences(name, option):
    make = functools.partial(de.DynamicEmbeddingOptimizer, BY_ROWS[name](), option == "bp_v2")
    options = {"ids_shape": [ROWS]} if option == "static_ids" else {"bp_v2": True}
    expected = in_session(BY_ROWS[name], all_rows=True, dynamic=False)
    found = in_session(make, all_rows=True, dynamic=True, **options)
    if option == "static_ids":
        np.testing.assert_array_equal(found, expected)
    else:  # the table adds the difference between the new and the old value
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@each_mode
@pytest.mark.parametrize("initial", [0.3, lambda: tf.constant(0.3)], ids=["number", "function"])
def test_new_rows_and_their_slots_begin_with_the_initial_values(mode, initial):
    class Summing(legacy_opt.RuleOptimizer):
        def __init__(self):
            super().__init__(False, "Summing")

        slots = {"total": legacy_opt.Slot(initial)}

        def rule(self, grad, value, slots, hyper):
            return slots.total, {"total": slots.total + 1}

    start = np.zeros_like(START)
    train = functools.partial(MODES[mode], all_rows=False, start=start)
    expected = train(Summing, dynamic=False)
    found = train(lambda: de.DynamicEmbeddingOptimizer(Summing()), dynamic=True)
    np.testing.assert_array_equal(found, expected)
    assert np.all(found < -0.29)


def test_a_sparse_gradient_of_looked_up_rows_changes_these_rows():
    def train(dynamic):
        with tf.Graph().as_default():
            optimizer = rule_only(BY_ROWS["LazyAdamOptimizer"])()
            if dynamic:
                table, optimizer = new_table(), de.DynamicEmbeddingOptimizer(optimizer)
                fill, positions = table.upsert(*filling(START)), tf.constant([2, 0])
                ids = tf.constant([5, 7, 8], tf.int64)
                rows, variable = de.embedding_lookup(table, ids, return_trainable=True)
            else:
                variable = v1.get_variable("w", initializer=START, use_resource=True)
                fill, positions, rows = (), tf.constant([8, 5]), variable
            grad = tf.IndexedSlices(tf.sin(tf.gather(rows, positions)), positions, tf.shape(rows))
            done = optimizer.apply_gradients([(grad, variable)])
            with v1.Session() as session:
                session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
                session.run(fill)
                for _ in range(3):
                    session.run(done)
                if not dynamic:
                    return session.run(variable)
                return sorted_rows(*session.run(table.export()))

    np.testing.assert_array_equal(train(dynamic=True), train(dynamic=False))


def test_a_multi_optimizer_trains_a_table_and_other_variables():
    def train(dynamic):
        with tf.Graph().as_default():
            step = v1.train.get_or_create_global_step()
            inner, table = rule_only(BY_ROWS["LazyAdamOptimizer"])(), new_table()
            scale = v1.get_variable("scale", initializer=START[0], use_resource=True)
            if dynamic:
                inner = de.DynamicEmbeddingOptimizer(inner)
                rows = de.embedding_lookup(table, tf.range(ROWS, dtype=tf.int64), name="rows")
            else:
                rows = v1.get_variable("rows", initializer=START, use_resource=True)
            default = legacy_opt.AdagradDecayOptimizer(0.1, step)
            optimizer = legacy_opt.MultiOptimizer([(inner, "rows")], default)
            done = optimizer.minimize(loss_of(rows, scale), global_step=step)
            with v1.Session() as session:
                session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
                session.run(table.upsert(*filling(START)))
                for _ in range(3):
                    session.run(done)
                return session.run([tf.identity(rows), scale])

    rows, scale = train(dynamic=False)
    assert np.all(rows != START) and np.all(scale != START[0])
    for found, expected in zip(train(dynamic=True), (rows, scale)):
        np.testing.assert_array_equal(found, expected)
