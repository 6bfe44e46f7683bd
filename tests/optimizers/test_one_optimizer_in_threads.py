"""Threads train variables of their own with one optimizer: each gets what it would get alone."""

import functools
import pickle
import re
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat.side_by_side import training_function
from legacy_opt.optimizers import decay_of_contrib
from tests.support import every_class, inner_optimizers, running
from tests.support.cases import CASES
from tests.support.shared_by_threads import (
    THREADS,
    Own,
    compare,
    each_number,
    number_of_thread,
    trained,
)

v1 = tf.compat.v1
RATES = 0.1, 0.2, 0.3, 0.4


def rate_of_thread():
    """Returns another number in each thread, after the other threads have gone on."""
    time.sleep(1e-4)
    return RATES[number_of_thread()]


def make_case(name):
    step = tf.Variable(2, dtype=tf.int64, trainable=False)  # the steps do not increment it
    return every_class.make(name, step)


class Own_(legacy_opt.RuleOptimizer):
    """Writes attributes in all methods that a training step calls."""

    slots = {"m": legacy_opt.Slot()}

    def __init__(self, learning_rate=rate_of_thread):
        super().__init__(False, "Own", learning_rate=learning_rate)

    def _prepare(self):
        self._rate_now = rate_of_thread()
        super()._prepare()

    def once_per_step(self, hyper):
        self._of_step = number_of_thread()
        return {"twice": 2 * hyper.learning_rate}

    def prepare_step(self, grads_and_vars):
        return {id(variable): 3 * grad for grad, variable in grads_and_vars}

    def rule(self, grad, value, slots, hyper):
        m = slots.m * self._rate_now + grad
        return hyper.twice * m + self._of_step * value, {"m": m}


class Imperative(Own_):
    def apply_update(self, update):
        m = update.access.read(update.slots.m) * update.hyper.learning_rate + update.prepared
        update.access.assign(update.slots.m, m)
        return update.access.subtract(update.variable, self._rate_now * m)


def extended(base, *arguments):
    return legacy_opt.extend_with_decoupled_weight_decay(base)(
        rate_of_thread, rate_of_thread, *arguments
    )


MAKERS = {
    "own rule": Own_,
    "imperative": Imperative,
    "extended own rule": lambda: extended(Own_),
    "extended gradient descent": lambda: extended(v1.train.GradientDescentOptimizer),
    "extended Momentum": lambda: extended(v1.train.MomentumOptimizer, rate_of_thread),
    "extended RMSProp": lambda: extended(v1.train.RMSPropOptimizer),
    "AddSign": lambda: legacy_opt.AddSignOptimizer(rate_of_thread, beta=rate_of_thread),
    "PowerSign": lambda: legacy_opt.PowerSignOptimizer(rate_of_thread, lambda: 1 + rate_of_thread()),
    "clips": lambda: legacy_opt.ClipByNormOptimizer(Own_(), rate_of_thread),
    "clips globally": lambda: legacy_opt.clip_gradients_by_global_norm_of(Own_())
    if False
    else legacy_opt.ClipByGlobalNormOptimizer(Own_(), rate_of_thread),
    "averages": lambda: legacy_opt.MovingAverageOptimizer(Own_(), rate_of_thread),
    "accumulates": lambda: legacy_opt.GradientAccumulationOptimizer(Own_(), 1),
    "multi": lambda: legacy_opt.MultiOptimizer([(Own_(), "matrix")], default=Imperative()),
    "multitask": lambda: legacy_opt.MultitaskOptimizerWrapper(extended(Own_)),
}


@pytest.mark.parametrize("kind", ["dense", "duplicates"])
@pytest.mark.parametrize("name", CASES)
def test_each_case(name, kind):
    compare(lambda: make_case(name), functools.partial(trained, kind=kind))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", MAKERS)
def test_hyperparameters_of_each_thread(name, kind):
    compare(MAKERS[name], functools.partial(trained, kind=kind))


@pytest.mark.parametrize("name", MAKERS)
def test_functions_that_are_traced_at_once(name):
    def call(apply, own):
        return training_function(apply, [running.signature(own.problem)])

    compare(MAKERS[name], functools.partial(trained, call=call))


@pytest.mark.parametrize("name", MAKERS)
def test_graphs_that_are_built_at_once(name):
    def train(optimizer, number):
        return running.session(Own(number).problem, lambda _: optimizer, use_resource=True).steps[-1]

    compare(MAKERS[name], train)
