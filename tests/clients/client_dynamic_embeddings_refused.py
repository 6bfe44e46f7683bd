"""Tests which optimizers refuse dynamic embedding tables, and with which errors."""

import contextlib
import functools
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

import legacy_opt
from legacy_opt import native, versions
from legacy_opt.compat import to_keras, to_v1
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native.updates import kernel_choice
from legacy_opt.programs.program import UnsupportedError
from tests.clients.dynamic_tables import (
    BY_ROWS,
    DIM,
    MODES,
    OF_ALL_ROWS,
    REFUSED,
    REFUSED_WRAPPERS,
    WRAPPED,
    each_mode,
    new_table,
)
from tests.support.cases import optimizers_in
from tests.support.paths import ROOT

v1 = tf.compat.v1


def looked_up():
    """Looks up rows of a new table. Returns a loss, and the variable of the rows."""
    table, ids = new_table(), tf.constant([1, 2], tf.int64)
    rows, variable = de.embedding_lookup(table, ids, name="rows", return_trainable=True)
    return tf.reduce_sum(tf.square(rows - 1.0)), variable


@contextlib.contextmanager
def mode_of(name):
    """Scope in which `looked_up` is called, a graph or eager execution."""
    with tf.Graph().as_default() if name == "session" else contextlib.ExitStack():
        v1.get_default_graph().clear_collection(v1.GraphKeys.GLOBAL_STEP)
        v1.train.get_or_create_global_step()
        yield


def apply(optimizer, variable):
    step = v1.train.get_global_step()
    return optimizer.apply_gradients([(tf.ones([2, DIM]), variable)], global_step=step)


# DynamicEmbeddingOptimizer itself refuses optimizers of Keras 3.
WRAPS = [lambda each: each]
if versions.keras_facts()["generation"] == 2:
    WRAPS.append(de.DynamicEmbeddingOptimizer)
each_scope = pytest.mark.parametrize("scope", ["session", "eager"])


@each_scope
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_slots_of_another_shape_or_dtype_are_refused_before_any_slot_is_made(scope, name):
    make, why = REFUSED[name]
    with mode_of(scope):
        _, variable = looked_up()
        optimizer = de.DynamicEmbeddingOptimizer(make())
        expected = f"{name} cannot train the dynamic embedding table of '{variable.name}': its "
        with pytest.raises(ValueError, match=re.escape(expected + why) + ".*MultiOptimizer"):
            apply(optimizer, variable)
        assert not optimizer.get_slot_names()


@each_scope
@pytest.mark.parametrize("name", sorted(REFUSED_WRAPPERS))
def test_wrappers_that_need_the_same_rows_in_each_step_are_refused(scope, name):
    with mode_of(scope):
        _, variable = looked_up()
        inner = de.DynamicEmbeddingOptimizer(legacy_opt.LazyAdamOptimizer())
        with pytest.raises(ValueError, match=f"{name} cannot train the dynamic embedding table of"):
            apply(REFUSED_WRAPPERS[name](inner, variable), variable)
        assert not inner.get_slot_names()


@each_scope
@pytest.mark.parametrize(
    "make",
    [
        legacy_opt.LazyAdamOptimizer,
        lambda: de.DynamicEmbeddingOptimizer(
            legacy_opt.ClipByNormOptimizer(legacy_opt.LazyAdamOptimizer(), 1.0)
        ),
    ],
    ids=["not wrapped", "a wrapper is wrapped"],
)
def test_an_optimizer_without_dynamic_slots_is_refused(scope, make):
    with mode_of(scope):
        _, variable = looked_up()
        with pytest.raises(ValueError, match=r"DynamicEmbeddingOptimizer\(LazyAdamOptimizer"):
            apply(make(), variable)


@each_scope
@pytest.mark.parametrize("wrap", WRAPS)
def test_keras_optimizers_are_refused(scope, wrap):
    with mode_of(scope):
        loss, variable = looked_up()
        pair = tf.ones([2, DIM]), variable
        converted = to_v1("adam"), wrap(to_keras(legacy_opt.LazyAdamOptimizer()))
        for optimizer, function in zip(converted, ["to_v1", "to_keras"]):
            expected = f"that {function} has converted cannot train the dynamic embedding table"
            with pytest.raises(ValueError, match=expected):
                optimizer.apply_gradients([pair])
        with pytest.raises(ValueError, match="that to_v1 has converted cannot"):
            converted[0].minimize(loss if scope == "session" else lambda: loss, var_list=[variable])


# Native kernels.

STOCK = {
    "AdamOptimizer": lambda: v1.train.AdamOptimizer(0.1),
    "MomentumOptimizer": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
}


def with_kernels(make, mode):
    """Returns a function that creates an optimizer with native kernels."""

    def made():
        optimizer = make()
        if not hasattr(optimizer, "native"):
            native.accelerate(optimizer)
        optimizer.native = mode
        return de.DynamicEmbeddingOptimizer(optimizer)

    return made


@each_mode
@pytest.mark.parametrize("name", ["LazyAdamOptimizer", "MomentumWOptimizer", *STOCK])
def test_native_kernels_fall_back_or_are_refused(mode, name):
    make = {**BY_ROWS, **STOCK}[name]
    train = functools.partial(MODES[mode], all_rows=True)
    expected = train(make, dynamic=False)
    kernel_choice._warned.clear()
    with pytest.warns(NativeKernelWarning, match="is a dynamic embedding table"):
        trained = train(with_kernels(make, "auto"), dynamic=True)
    np.testing.assert_array_equal(trained, expected)
    # In a function, AutoGraph raises the error as an error of another class.
    error = Exception if mode == "function" else UnsupportedError
    with pytest.raises(error, match="is a dynamic embedding table"):
        train(with_kernels(make, "require"), dynamic=True)


# The lists above.


def test_each_public_optimizer_is_in_a_list():
    classes = set(optimizers_in(legacy_opt))
    bases = {"RuleOptimizer", "OptimizerWrapper"}
    listed = {*BY_ROWS, *OF_ALL_ROWS, *WRAPPED, *REFUSED, *REFUSED_WRAPPERS}
    assert {name.partition("(")[0] for name in listed} == classes - bases


def test_the_page_has_the_same_lists():
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    rows = [set(re.findall(r"`(\w+Optimizer\w*(?:\(.*?\))?)`", row)) for row in page.splitlines()]
    for expected in {*BY_ROWS}, {*OF_ALL_ROWS}, {*WRAPPED}, {*REFUSED, *REFUSED_WRAPPERS}:
        assert expected in rows
