"""Kernels in threads: each thread gets what it would get alone, and several compile at once."""

import functools

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import native
from tests.support import every_class
from tests.support.shared_by_threads import (
    compare,
    each_number,
    noting,
    number_of_thread,
    trained,
)

v1 = tf.compat.v1
RATES = 0.1, 0.2, 0.3, 0.4
KINDS = pytest.mark.parametrize("kind", ["dense", "duplicates"])


def rate_of_thread():
    return RATES[number_of_thread()]


def case(name):
    step = tf.Variable(2, dtype=tf.int64, trainable=False)  # nobody increments it
    return every_class.make(name, step)


MAKERS = {
    "Momentum": lambda: v1.train.MomentumOptimizer(rate_of_thread, 0.9),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(rate_of_thread),
    "Adam": lambda: v1.train.AdamOptimizer(0.1),
    "AddSign": lambda: legacy_opt.AddSignOptimizer(rate_of_thread),
    "LARS": functools.partial(case, "LARS"),
    "AdagradDecay": functools.partial(case, "AdagradDecay"),
    "RegAdagrad": lambda: legacy_opt.RegAdagradOptimizer(rate_of_thread),
    "MomentumW": lambda: legacy_opt.MomentumWOptimizer(rate_of_thread, rate_of_thread, 0.9),
    "Multi": lambda: legacy_opt.MultiOptimizer(
        [(legacy_opt.AddSignOptimizer(rate_of_thread), "matrix|table")],
        default=v1.train.MomentumOptimizer(rate_of_thread, 0.9),
    ),
    "MovingAverage": lambda: legacy_opt.MovingAverageOptimizer(
        legacy_opt.AddSignOptimizer(rate_of_thread), 0.9
    ),
}


@KINDS
@pytest.mark.parametrize("name", MAKERS)
def test_threads(fresh, name, kind):
    compare(lambda: native.accelerate(MAKERS[name]()), functools.partial(trained, kind=kind))


@pytest.mark.parametrize("base", [legacy_opt.AddSignOptimizer, legacy_opt.MomentumWOptimizer])
def test_attributes_that_apply_gradients_of_the_user_sets(fresh, base):
    def make():
        rest = (0.1, 0.9) if base is legacy_opt.MomentumWOptimizer else ()
        optimizer = noting(base, "apply_gradients")(lambda: RATES[optimizer.noted], *rest)
        return native.accelerate(optimizer)

    compare(make)


def test_optimizers_of_each_thread_that_compile_at_once(fresh):
    def train(number):
        optimizer = native.accelerate(legacy_opt.AddSignOptimizer(0.1), require=True)
        return sorted(trained(optimizer, 0).items(), key=str)

    first, *others = each_number(train, at_once=True)
    assert all(str(other) == str(first) for other in others)


def test_a_step_in_a_step_is_an_error():
    def rate():
        optimizer.apply_gradients(pairs)
        return 0.1

    pairs = [(tf.constant([1.0]), tf.Variable([1.0]))]
    optimizer = native.accelerate(v1.train.MomentumOptimizer(rate, 0.9))
    with pytest.raises(RuntimeError, match="MomentumOptimizer began a training step in its own"):
        optimizer.apply_gradients(pairs)
