"""Threads train variables of their own with one optimizer: each gets what it would get alone."""

import copy
import functools
import inspect
import pickle
import time
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat.in_keras.side_by_side import training_function
from legacy_opt.core import step
from legacy_opt.optimizers import decay_of_contrib
from tests.support import every_class, running
from tests.support.shared_by_threads import (
    THREADS,
    Own,
    compare,
    each_number,
    noting,
    number_of_thread,
    trained,
)

v1 = tf.compat.v1
RATES = 0.1, 0.2, 0.3, 0.4
KINDS = "dense", "duplicates"


def rate_of_thread():
    """Returns another number in each thread, after the other threads have gone on."""
    time.sleep(1e-4)
    return RATES[number_of_thread()]


class Rule(legacy_opt.RuleOptimizer):
    """Writes attributes of its own in the methods that a training step calls."""

    slots = {"m": legacy_opt.Slot()}

    def __init__(self, learning_rate=rate_of_thread):
        super().__init__(False, "Rule", learning_rate=learning_rate)

    def _prepare(self):
        self._rate_now = rate_of_thread()
        super()._prepare()

    def once_per_step(self, hyper):
        self._of_step = rate_of_thread()
        return {"twice": 2 * hyper.learning_rate}

    def prepare_step(self, grads_and_vars):
        return {id(variable): rate_of_thread() for _, variable in grads_and_vars}

    def rule(self, grad, value, slots, hyper):
        m = slots.m * self._rate_now + grad
        return hyper.twice * m + self._of_step * value, {"m": m}


class Imperative(Rule):
    def apply_update(self, update):
        m = update.access.read(update.slots.m) * update.hyper.learning_rate + update.grad
        change = self._rate_now * m if update.prepared is None else update.prepared * m
        with tf.control_dependencies([change]):
            written = update.access.assign(update.slots.m, m)
            return tf.group(written, update.access.subtract(update.variable, change))


def extended(base, *arguments):
    cls = legacy_opt.extend_with_decoupled_weight_decay(base)
    return cls(rate_of_thread, rate_of_thread, *arguments)


MAKERS = {
    "Rule": Rule,
    "Imperative": Imperative,
    "AddSign": lambda: legacy_opt.AddSignOptimizer(rate_of_thread, beta=rate_of_thread),
    "PowerSign": lambda: legacy_opt.PowerSignOptimizer(rate_of_thread, rate_of_thread),
    "decayed Rule": lambda: extended(Rule),
    "decayed Adagrad": lambda: extended(v1.train.AdagradOptimizer),
    "decayed Momentum": lambda: extended(v1.train.MomentumOptimizer, rate_of_thread),
    "decayed RMSProp": lambda: extended(v1.train.RMSPropOptimizer),
    "ClipByNorm": lambda: legacy_opt.ClipByNormOptimizer(Rule(), rate_of_thread),
    "ClipByGlobalNorm": lambda: legacy_opt.ClipByGlobalNormOptimizer(Rule(), rate_of_thread),
    "MovingAverage": lambda: legacy_opt.MovingAverageOptimizer(Rule(), rate_of_thread),
    "Multi": lambda: legacy_opt.MultiOptimizer([(Rule(), "matrix|table")], default=Imperative()),
    "Multitask": lambda: legacy_opt.MultitaskOptimizerWrapper(extended(Rule)),
}
TRACED = pytest.mark.parametrize("name", ["Rule", "decayed Momentum", "Multitask"])


@pytest.mark.parametrize(
    "name, kind", [(name, KINDS[i % 2]) for i, name in enumerate(every_class.CLASSES)]
)
def test_each_class(name, kind):
    def make():
        step = tf.Variable(2, dtype=tf.int64, trainable=False)  # nobody increments it
        return every_class.make(name, step)

    compare(make, functools.partial(trained, kind=kind))


@pytest.mark.parametrize("name, kind", [(name, KINDS[i % 2]) for i, name in enumerate(MAKERS)])
def test_hyperparameters_of_each_thread(name, kind):
    compare(MAKERS[name], functools.partial(trained, kind=kind))


@TRACED
def test_functions_that_are_traced_at_once(name):
    def call(apply, own):
        return training_function(apply, [running.signature(own.problem)])

    compare(MAKERS[name], functools.partial(trained, call=call))


@TRACED
def test_graphs_that_are_built_at_once(name):
    def train(optimizer, number):
        return running.session(Own(number).problem, lambda _: optimizer).steps[-1]

    compare(MAKERS[name], train)


def decaying(*mixed):
    return legacy_opt.extend_with_decoupled_weight_decay(*mixed)


Momentum = v1.train.MomentumOptimizer
NOTING = {  # each takes the method and a hyperparameter
    "rule": lambda method, rate: noting(Rule, method)(rate),
    "rule, mixin": lambda method, rate: noting(Rule, method, in_mixin=True)(rate),
    "decayed": lambda method, rate: noting(decaying(Momentum), method)(0.1, rate, 0.9),
    "decays": lambda method, rate: decaying(noting(Momentum, method))(0.1, rate, 0.9),
    "wrapper": lambda method, rate: noting(legacy_opt.OptimizerWrapper, method)([Rule(rate)]),
    "wrapper, mixin": lambda method, rate: noting(legacy_opt.OptimizerWrapper, method, True)(
        [Rule(rate)]
    ),
}


@pytest.mark.parametrize("name", NOTING)
@pytest.mark.parametrize("method", ["minimize", "apply_gradients"])
@pytest.mark.parametrize("function", [False, True])
def test_attributes_that_a_method_of_the_user_sets(name, method, function):
    def make():
        optimizer = NOTING[name](method, lambda: RATES[optimizer.noted])
        return optimizer

    def train(optimizer, number):
        variable = tf.Variable([1.0, 2.0])

        def loss():
            return tf.reduce_sum(variable * variable)

        def step():
            if method == "minimize":
                optimizer.minimize(loss, var_list=[variable])
            else:
                optimizer.apply_gradients([(2.0 * variable, variable)])

        step = tf.function(step) if function else step
        for _ in range(4):
            step()
        return {"variable": variable.numpy()}

    compare(make, train)


def test_a_method_of_the_user_keeps_its_properties():
    """AutoGraph, its signature, and the order in which the classes' methods are called."""

    class Mixin:
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            pairs = [(grad * 3.0, variable) for grad, variable in grads_and_vars]
            return super().apply_gradients(pairs, global_step, name)

    class One(Mixin, Rule):
        pass

    class Other(Mixin, Rule):
        def minimize(self, loss, global_step=None, only=None):
            return super().minimize(loss, global_step, [only])

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            pairs = []
            for grad, variable in grads_and_vars:
                if tf.reduce_sum(grad) > 0.0:  # a tensor, in a tf.function
                    grad = -grad
                pairs.append((grad, variable))
            return super().apply_gradients(pairs, global_step, name)

    class Both(One, Other):
        pass

    def train(number):
        optimizer, w = Both(0.1), tf.Variable([1.0, 2.0])

        @tf.function
        def step():
            optimizer.apply_gradients([(2.0 * w, w)])

        step()
        return w.numpy()

    assert list(inspect.signature(Both.minimize).parameters)[-1] == "only"
    # One has no method of its own, so Other is before Mixin. Rule has the rates 0.2 and 0.1.
    expected = [1.0 + 0.2 * 6.0 - 0.1, 2.0 + 0.2 * 12.0 - 0.2]
    np.testing.assert_allclose(each_number(train, at_once=False)[0], expected, rtol=1e-6)


DECAYED = {
    "MomentumW": lambda: legacy_opt.MomentumWOptimizer(0.1, 0.1, 0.9),
    "decayed Rule": MAKERS["decayed Rule"],
    "as in tf.contrib": lambda: decay_of_contrib.MomentumWOptimizer(0.1, 0.1, 0.9),
}


@pytest.mark.parametrize("name", DECAYED)
@pytest.mark.parametrize("method", ["minimize", "apply_gradients", "decaying_only"])
def test_each_thread_decays_variables_of_its_own(name, method):
    """Without gradients, only the decay changes the variables."""

    def train(optimizer, number):
        first, second = (tf.Variable([number + 1.0]) for _ in range(2))
        to_decay = [first, second][number % 2 :][:1]

        def loss():
            time.sleep(1e-3)
            return tf.reduce_sum(0.0 * (first + second))

        for _ in range(3):
            if method == "minimize":
                optimizer.minimize(loss, var_list=[first, second], decay_var_list=to_decay)
                continue
            pairs = [(tf.zeros([1]), first), (tf.zeros([1]), second)]
            if method == "apply_gradients":
                optimizer.apply_gradients(pairs, decay_var_list=to_decay)
                continue
            with optimizer.decaying_only(to_decay):
                optimizer.apply_gradients(pairs)
        return {"first": first.numpy(), "second": second.numpy()}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(DECAYED[name], train)


def test_slots_that_only_some_threads_update():
    def train(optimizer, number):
        own = Own(number)
        for gradients in own.steps():
            optimizer.apply_gradients(own.pairs(gradients))
            with optimizer.avoid_updating_slots():
                time.sleep(1e-3)
                optimizer.apply_gradients(own.pairs(gradients))
        return own.state(optimizer)

    compare(lambda: legacy_opt.RegAdagradOptimizer(rate_of_thread), train)


def test_an_optimizer_inside_and_outside_of_wrappers():
    """With zeros, Momentum moves the variable by its moment, but not inside of Multitask."""
    momentum = legacy_opt.MomentumWOptimizer(0.0, 0.5, 0.5)
    inner = legacy_opt.MovingAverageOptimizer(momentum)
    optimizers = [
        momentum,
        legacy_opt.MultitaskOptimizerWrapper(inner),
        legacy_opt.MultitaskOptimizerWrapper(momentum),
        inner,
    ]
    variables = [tf.Variable([1.0]) for _ in optimizers]
    momentum.apply_gradients([(tf.constant([1.0]), variable) for variable in variables])

    def train(number):
        for _ in range(6):
            optimizers[number].apply_gradients([(tf.constant([0.0]), variables[number])])
        return variables[number].numpy()[0]

    moved = 1 - sum(0.5 ** (i + 1) for i in range(7))
    assert each_number(train, at_once=True) == [moved, 0.5, 0.5, moved]
    assert "_apply_dense" not in vars(momentum)


def test_wrappers_that_share_optimizers_do_not_wait_forever():
    def train(wrappers, number):
        return trained(wrappers[number], number)

    def make():
        one, two = Rule(), Imperative()
        multi = legacy_opt.MultiOptimizer([(one, "matrix")], default=two)
        return [
            multi,
            legacy_opt.MultiOptimizer([(two, "matrix")], default=one),
            legacy_opt.MultitaskOptimizerWrapper(legacy_opt.MovingAverageOptimizer(multi)),
            legacy_opt.ClipByNormOptimizer(two, 1.0),
        ]

    compare(make, train)


def test_threads_that_accumulate_into_the_same_sums():
    variable = tf.Variable([0.0])
    optimizer = legacy_opt.GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 3)

    def train(number):
        for _ in range(9):
            optimizer.apply_gradients([(tf.constant([1.0]), variable)])

    each_number(train, at_once=True)
    assert variable.numpy() == -THREADS * 9 / 3  # an update whenever there are three gradients


# An optimizer that begins a step in its own step.


def calls_itself(method):
    """Returns an optimizer that applies gradients in a method of its own rule."""
    other = tf.Variable([1.0])

    class CallsItself(legacy_opt.RuleOptimizer):
        is_nested = True

        def _call(self):
            if self.is_nested:
                self.apply_gradients([(tf.constant([1.0]), other)])

        def rule(self, grad, value, slots, hyper):
            if method == "rule":
                self._call()
            return grad, {}

        def prepare_step(self, grads_and_vars):
            if method == "prepare_step":
                self._call()
            return {}

    return CallsItself(False, "CallsItself")


@pytest.mark.parametrize("extend", [False, True])
@pytest.mark.parametrize("method", ["rule", "prepare_step"])
def test_a_step_in_a_step_is_an_error(method, extend):
    optimizer = calls_itself(method)
    if extend:
        cls = legacy_opt.extend_with_decoupled_weight_decay(type(optimizer))
        optimizer = cls(0.5, False, "CallsItself")
    variable = tf.Variable([1.0])
    pairs = [(tf.constant([0.25]), variable)]
    with pytest.raises(RuntimeError, match="CallsItself.* began a training step in its own"):
        optimizer.apply_gradients(pairs)
    optimizer.is_nested = False  # afterwards, it trains as usual
    variable.assign([1.0])
    optimizer.apply_gradients(pairs)
    assert variable.numpy() == (0.25 if extend else 0.75)


def test_a_hyperparameter_that_trains_is_an_error():
    def rate():
        optimizer.minimize(lambda: 1.0 * variable, var_list=[variable])
        return 0.1

    variable = tf.Variable(1.0)
    optimizer = legacy_opt.MomentumWOptimizer(0.1, rate, 0.9)
    with pytest.raises(RuntimeError, match="make a second optimizer"):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])


def test_an_optimizer_that_applies_gradients_in_parts():
    class InParts(Rule):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            for pair in grads_and_vars:
                super().apply_gradients([pair])

    compare(InParts)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_waits_for_nobody(name):
    optimizer = legacy_opt.MomentumWOptimizer(0.1, 0.1, 0.9)
    pairs = [(tf.ones([1]), tf.Variable([1.0]))]
    with step.alone(optimizer):
        copied = COPIES[name](optimizer)
        each_number(lambda _: copied.apply_gradients(pairs), at_once=False)


class HasWrapped(legacy_opt.AddSignOptimizer):
    """Has an attribute that wrappers have, too."""

    def __init__(self):
        super().__init__(0.1)
        self._wrapped = None


class IsEqual(legacy_opt.AddSignOptimizer):
    """Cannot be the key of a dict."""

    def __eq__(self, other):
        return type(self) is type(other)


@pytest.mark.parametrize("make", [HasWrapped, lambda: IsEqual(0.1)])
def test_unusual_classes_have_a_lock(make):
    w = tf.Variable([1.0, 2.0])
    make().apply_gradients([(tf.ones([2]), w)])
    np.testing.assert_array_equal(w.numpy(), np.float32([0.8, 1.8]))


@pytest.mark.filterwarnings("ignore:.*obeys decay_var_list")
def test_a_decay_var_list_inside_another():
    descent = tf.compat.v1.train.GradientDescentOptimizer
    optimizer = legacy_opt.extend_with_decoupled_weight_decay(descent)(0.5, 0.0)
    a, b = tf.Variable([1.0]), tf.Variable([1.0])

    def loss():
        optimizer.apply_gradients([(tf.zeros([1]), b)], decay_var_list=[b])
        return tf.reduce_sum(0.0 * (a + b))

    optimizer.minimize(loss, var_list=[a, b], decay_var_list=[a])
    assert [a.numpy()[0], b.numpy()[0]] == [0.5, 0.5]
