"""Tests on TensorFlow 1.15 that `accelerate` accepts the optimizers of `tf.contrib.opt`."""

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat
from legacy_opt.native import accelerate
from legacy_opt.native.updates.acceleration import OF_CONTRIB
from tests.native.training import START, is_native
from tests.support import running
from tests.support.cases import CASES

pytestmark = pytest.mark.contrib

v1 = tf.compat.v1


def original_of(case):
    """Returns the case's class in `tf.contrib.opt`, or None if `accelerate` does not accept it."""
    if case.original is None:
        return None
    cls = case.original.optimizer()
    return cls if cls.__name__ in OF_CONTRIB else None


@pytest.mark.parametrize("name", CASES)
def test_all_arguments_are_kept(name):
    case = CASES[name]
    original = original_of(case)
    if original is None:
        return
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        theirs = case.construct(original, step)
        found = accelerate(theirs)
        expected = case.construct(OF_CONTRIB[original.__name__], step)
    assert found is theirs and type(found) is type(expected)
    for each in found, expected:
        vars(each).pop("_new_steps", None)  # optimizers never share this object
    assert vars(found) == dict(vars(expected), native="auto")


def test_every_class_has_a_case():
    assert {original_of(case) for case in CASES.values()} - {None} == {
        getattr(tf.contrib.opt, name) for name in OF_CONTRIB
    }


def trained(optimizer):
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("w", initializer=START)
        train_op = optimizer.apply_gradients([(tf.ones_like(START), variable)])
        value = running.after(train_op, variable).tolist()
        names = sorted(each.op.name for each in v1.global_variables())
        return value, names, {each.type for each in graph.get_operations()}


def test_training():
    value, names, types = trained(tf.contrib.opt.AdaMaxOptimizer(0.5))
    assert not is_native(types)
    found = trained(accelerate(tf.contrib.opt.AdaMaxOptimizer(0.5), require=True))
    assert found[:2] == (value, names) and is_native(found[2])


def test_an_optimizer_with_slots_is_refused():
    optimizer = tf.contrib.opt.AdaMaxOptimizer(0.5)
    trained(optimizer)
    with pytest.raises(TypeError, match="AdaMaxOptimizer has created slots already. Call acc"):
        accelerate(optimizer)


def test_a_patch_replaces_the_classes():
    original = tf.contrib.opt.LazyAdamOptimizer
    with compat.patch_tensorflow(native=True):
        assert tf.contrib.opt.LazyAdamOptimizer is legacy_opt.LazyAdamOptimizer
        from tensorflow.contrib.opt import AddSignOptimizer

        assert AddSignOptimizer is legacy_opt.AddSignOptimizer
    assert tf.contrib.opt.LazyAdamOptimizer is original


def test_a_class_that_was_imported_before_the_patch():
    from tensorflow.contrib.opt.python.training.adamax import AdaMaxOptimizer

    with compat.patch_tensorflow(native=True):
        assert type(AdaMaxOptimizer(0.5)) is AdaMaxOptimizer


def test_nothing_changes_if_one_optimizer_has_no_kernels():
    adamax = tf.contrib.opt.AdaMaxOptimizer(0.5)
    inner = tf.contrib.opt.ShampooOptimizer(global_step=0)
    with pytest.raises(TypeError, match="no native kernels for ShampooOptimizer"):
        accelerate(legacy_opt.MultiOptimizer([(adamax, "a")], default=inner))
    assert type(adamax) is tf.contrib.opt.AdaMaxOptimizer
