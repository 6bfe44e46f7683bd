"""Tests that NumPy trains recorded rules with the bits of native kernels in a Session.

So do the kernels of the same rules, in place, without TensorFlow.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded
from legacy_opt.programs import optimizers
from legacy_opt.recorded.native import NativeOptimizer
from legacy_opt.recorded.numpy import NumpyOptimizer
from tests.recorded.numpy_training import trained
from tests.support import problems, running
from tests.support.cases import CASES

v1 = tf.compat.v1
DTYPES = ("float32", "float64")
# Records of these cases have no value of sign_decay, which is a function of the global step.
WITH_FUNCTION = ("AddSign alpha, beta, decay", "PowerSign base, beta, decay")
RULES = [
    name
    for name, case in CASES.items()
    if optimizers.may_have_kernels(case.optimizer)
    and not name.startswith(("Shampoo", *WITH_FUNCTION))
]


def stock(cls, *args, **kwargs):
    return lambda step: cls(*args, **kwargs)


STOCK = {
    "Adadelta": stock(v1.train.AdadeltaOptimizer, 0.1),
    "Adagrad": stock(v1.train.AdagradOptimizer, 0.1),
    "AdagradDA": lambda step: v1.train.AdagradDAOptimizer(0.1, step),
    "Adam": stock(v1.train.AdamOptimizer, 0.01, epsilon=0.1),
    "Ftrl": stock(v1.train.FtrlOptimizer, 0.1, l1_regularization_strength=0.01),
    "Ftrl power": stock(v1.train.FtrlOptimizer, 0.1, learning_rate_power=-0.6),
    "GradientDescent": stock(v1.train.GradientDescentOptimizer, 0.1),
    "Momentum": stock(v1.train.MomentumOptimizer, 0.1, 0.9, use_nesterov=True),
    "ProximalAdagrad": stock(v1.train.ProximalAdagradOptimizer, 0.1, 0.1, 0.01, 0.01),
    "ProximalGradientDescent": stock(v1.train.ProximalGradientDescentOptimizer, 0.1, 0.01),
    "RMSProp": stock(v1.train.RMSPropOptimizer, 0.01, momentum=0.9, centered=True),
}
MAKERS = {**{name: CASES[name].make for name in RULES}, **STOCK}
# Cases with a rule of the catalogue, with which test_vectors_in_tensorflow.py trains, too.
OF_THE_CATALOGUE = (
    *("Adadelta", "Adafactor", "Adagrad", "AdagradDA", "AdagradDecay-never", "Adam", "AdamW"),
    *("AdaMax", "AddSign", "COCOB", "COCOB alpha=100", "ConditionalGradient", "DiffGrad", "Ftrl"),
    *("Ftrl power", "GradientDescent", "LARS", "LazyAdam", "Lion", "Lion weight_decay", "Nadam"),
    *("NovoGrad", "ProximalAdagrad", "ProximalGradientDescent", "RectifiedAdam"),
)
NAMES = ("matrix", "vector", "scalar", "table", "bias", "cube")


def native(name):
    def make(step):
        return legacy_opt.native.accelerate(MAKERS[name](step), require=True)

    return make


def recorded_rule(name, dtype="float32"):
    shapes = {each: array.shape for each, array in problems.everything(dtype).values.items()}
    by_name = name.startswith(("AdamWeightDecay", "LAMB", "LARS"))  # exclude names
    with tf.Graph().as_default():
        optimizer = MAKERS[name](v1.train.get_or_create_global_step())
        record = recorded.record(optimizer, shapes if by_name else None, dtype)
    again = recorded.loads(recorded.dumps(record))
    assert again == record and recorded.dumps(again) == recorded.dumps(record)
    return again


@functools.lru_cache(maxsize=None)
def problem_of(name, dtype):
    record = recorded_rule(name, dtype)
    names = [
        each
        for each in NAMES
        if not isinstance(
            getattr(
                record.group_of(each, problems.everything(dtype).values[each].shape),
                "sparse" if each in ("table", "bias", "cube") else "dense",
            ),
            str,
        )
    ]
    return record, problems.everything(dtype, tuple(names), steps=11)


@pytest.mark.in_turn(name=[each for each in MAKERS if each not in OF_THE_CATALOGUE], dtype=DTYPES)
def test_the_bits_of_native_kernels(name, dtype):
    check(name, dtype)


@pytest.mark.full
@pytest.mark.parametrize("name", OF_THE_CATALOGUE)
def test_the_bits_of_native_kernels_in_float64(name):
    check(name, "float64")
    mine, known = recorded_rule(name), recorded.load(recorded_rule(name).optimizer)
    programs = [group.dense for group in known.groups]
    assert all(group.dense in programs for group in mine.groups)


def check(name, dtype):
    """Compares a training in NumPy and native kernels with one in a Session."""
    record, problem = problem_of(name, dtype)
    assert len(problem.values) > 2
    expected = running.session(problem, native(name), use_resource=True)
    for optimizer_class in NumpyOptimizer, NativeOptimizer:
        found = trained(record, problem, optimizer_class)
        for number, (one, other) in enumerate(zip(found.steps, expected.steps)):
            for each in one:
                np.testing.assert_array_equal(one[each], other[each], f"{each}, step {number}")
        for key, value in expected.slots.items():
            np.testing.assert_array_equal(found.slots[key], value, str(key))
