"""Tests of errors for wrong arguments of `apply_gradients`, `minimize` and constructors."""

from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from tests.support.processes import programs

v1 = tf.compat.v1


def sgd():
    return v1.train.GradientDescentOptimizer(1.0)


MAKERS = {
    "a rule": lambda: legacy_opt.LazyAdamOptimizer(0.1),
    "decay": lambda: legacy_opt.MomentumWOptimizer(0.1, 0.1, 0.9),
    "clipping": lambda: legacy_opt.ClipByNormOptimizer(sgd(), 1.0),
    "clipped variables": lambda: legacy_opt.VariableClippingOptimizer(sgd(), {}, 1.0),
    "average": lambda: legacy_opt.MovingAverageOptimizer(sgd()),
    "several": lambda: legacy_opt.MultiOptimizer([(sgd(), ".*")]),
    "accumulation": lambda: legacy_opt.GradientAccumulationOptimizer(sgd(), 2),
    "loss scale": lambda: legacy_opt.LossScaleOptimizer(
        sgd(), legacy_opt.FixedLossScaleManager(64.0)
    ),
    "multitask": lambda: legacy_opt.MultitaskOptimizerWrapper(sgd()),
}
EVERY_KIND = pytest.mark.parametrize("kind", MAKERS)


@EVERY_KIND
def test_wrong_lists_of_gradient_variable_pairs(kind):
    w, dense = tf.Variable(np.ones([3, 2], "f")), tf.ones([3, 2])
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([3, 2]))
    optimizer = MAKERS[kind]()
    name = type(optimizer).__name__
    for wrong, message in [
        ([(w, rows)], "is not a variable. Pass the gradient first"),
        ([(w, dense)], "is not a variable. Pass the gradient first"),
        (5, "takes a list of .gradient, variable. pairs.*got 5"),
        ([(dense, w, 1)], "takes a list of .gradient, variable. pairs"),
        ([(dense, None)], "None is not a variable"),
        ([(dense, "w")], "'w' is not a variable"),
    ]:
        with pytest.raises(TypeError, match=f"(?s){name} takes.*{message.split('takes')[-1]}"):
            optimizer.apply_gradients(wrong)


@EVERY_KIND
def test_wrong_lists_of_variables(kind):
    w, optimizer = tf.Variable([1.0]), MAKERS[kind]()
    for wrong in "w", [w, 5], {"w": "w"}:
        with pytest.raises(TypeError, match="var_list must contain only variables, got"):
            optimizer.minimize(lambda: w * w, var_list=wrong)
    if versions.keras_facts()["generation"] == 3:
        of_keras = tf.keras.Variable(np.ones([1], "f"))
        with pytest.raises(TypeError, match="a variable of Keras 3.*to_keras"):
            optimizer.minimize(lambda: of_keras * of_keras, var_list=[[of_keras]])


NUMBERS = [Fraction(1, 4), np.longdouble(0.25)]


@pytest.mark.parametrize("number", NUMBERS, ids=["fraction", "longdouble"])
def test_numbers_that_tensorflow_refuses_become_floats(number):
    for make in (
        lambda number: legacy_opt.LazyAdamOptimizer(number, epsilon=number),
        lambda number: legacy_opt.MomentumWOptimizer(number, number, number),
        lambda number: legacy_opt.RegAdagradOptimizer(number, number),
        lambda number: legacy_opt.AdafactorOptimizer(
            learning_rate=number, decay_rate=legacy_opt.adafactor_decay_rate_pow(number)
        ),
        lambda number: legacy_opt.ClipByNormOptimizer(sgd(), number),
        lambda number: legacy_opt.MovingAverageOptimizer(sgd(), number),
    ):
        values = []
        for each in number, 0.25:
            w, optimizer = tf.Variable([1.0]), make(each)
            optimizer.global_step_is_advanced = True
            optimizer.apply_gradients([(tf.constant([2.0]), w)])
            values.append(w.numpy())
        np.testing.assert_array_equal(*values)
    with pytest.raises(ValueError, match="learning_rate must be finite"):
        legacy_opt.LazyAdamOptimizer(Fraction(10**400))


def test_slots_in_a_list():
    class Listed(legacy_opt.RuleOptimizer):
        slots = ["m"]

    with pytest.raises(TypeError, match=r"slots must be a dict .* as in \{'m': Slot\(\)\}.*'m'"):
        Listed(False, "Listed").apply_gradients([(tf.constant([1.0]), tf.Variable([1.0]))])


def test_training_raises_no_deprecation_warning_about_our_code():
    program = """
import numpy as np, tensorflow as tf, legacy_opt
v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    w = v1.get_variable("w", [2, 2])
    train_op = legacy_opt.AdagradDecayOptimizer(0.1, v1.train.get_or_create_global_step())
    train_op = train_op.apply_gradients([(tf.ones([2, 2]), w)], v1.train.get_global_step())
    session.run(v1.global_variables_initializer())
    session.run(train_op)
print("trained")
"""
    done = programs.run("-c", program, seconds=120)
    assert done.stdout == "trained\n", done.stderr
    assert "dtype argument" not in done.stderr
