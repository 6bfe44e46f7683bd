"""Tests that each variable gets its own kernel, if the rules of two variables differ."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import to_keras
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native.updates import check
from legacy_opt.programs.formulas import Formulas
from tests.native.training import START, Sgd
from tests.support import running
from tests.support.checkpoints.v1_checkpoints import APIS

v1 = tf.compat.v1
NAMES = ["layer_0", "layer_1", "layer_2"]
STEPS = 2


def layer(optimizer, variable):
    return int(optimizer.variable_name(variable).split(":")[0][-1])


class LayerwiseRate(Sgd):
    """Multiplies the learning rate by 0.5 per layer, as ELECTRA does."""

    def hyper_for(self, variable):
        hyper = super().hyper_for(variable)
        hyper.learning_rate *= 0.5 ** layer(self, variable)
        return hyper


class NumpyFactor(Sgd):
    def hyper_for(self, variable):
        hyper = super().hyper_for(variable)
        hyper.factor = np.float32(1 + layer(self, variable))
        return hyper

    def rule(self, grad, value, slots, hyper):
        step, changes = super().rule(grad, value, slots, hyper)
        return hyper.factor * step, changes


class OtherScalar(Sgd):
    """Two variables have kernels with equal C code, which read different scalars."""

    def __init__(self):
        super().__init__(0.5, slow_rate=0.125)

    def hyper_for(self, variable):
        hyper = super().hyper_for(variable)
        if layer(self, variable) == 1:
            hyper.learning_rate = hyper.slow_rate
        return hyper


class OtherRule(Sgd):
    """Has a rule for each variable, as the docstring of `pure_rule` allows."""

    def pure_rule(self, variable, sparse):
        return self._rule_of(layer(self, variable))

    def apply_update(self, update):
        rule = self._rule_of(layer(self, update.variable))
        value = update.access.read(update.variable)
        slots = type(update.slots)(sum=update.access.read(update.slots.sum))
        step, changes = rule(update.grad, value, slots, update.hyper)
        return tf.group(
            update.access.subtract(update.variable, step),
            update.access.assign(update.slots.sum, changes["sum"]),
        )

    def _rule_of(self, number):
        def rule(grad, value, slots, hyper):
            return hyper.learning_rate * grad / (2.0**number), {"sum": slots.sum + grad * number}

        return rule


class OtherSlot(Sgd):
    """Two variables have kernels with equal C code, which read different slots."""

    slots = {"sum": legacy_opt.Slot(), "other": legacy_opt.Slot(1.0)}

    def hyper_for(self, variable):
        hyper = super().hyper_for(variable)
        hyper.slot = ("sum", "other")[layer(self, variable) % 2]
        return hyper

    def slot_layouts(self, variable):
        name = ("sum", "other")[layer(self, variable) % 2]
        return {name: self.slots[name]}

    def rule(self, grad, value, slots, hyper):
        total = getattr(slots, hyper.slot) + grad
        return hyper.learning_rate * total, {hyper.slot: total}


CLASSES = [LayerwiseRate, NumpyFactor, OtherScalar, OtherRule, OtherSlot]


def gradient(number, sparse):
    value = np.float32((number + 3) / 4) * (START - 7)
    if sparse:
        return tf.IndexedSlices(tf.constant(value[:2]), tf.constant([3, 1]), tf.constant([5, 4]))
    return tf.constant(value)


def made(cls, setting):
    optimizer = cls()
    optimizer.native = setting
    return optimizer


def in_a_session(optimizer, sparse, use_resource):
    with tf.Graph().as_default():
        variables = [
            v1.get_variable(name, initializer=START, use_resource=use_resource) for name in NAMES
        ]
        pairs = [(gradient(i, sparse), each) for i, each in enumerate(variables)]
        train_op = optimizer.apply_gradients(pairs)
        return running.after(train_op, variables, STEPS)


def outside_of_graphs(optimizer, sparse, wrap=lambda step: step):
    variables = [tf.Variable(START, name=name) for name in NAMES]

    @wrap
    def step():
        pairs = [(gradient(i, sparse), each) for i, each in enumerate(variables)]
        optimizer.apply_gradients(pairs)

    for _ in range(STEPS):
        step()
    return [each.numpy() for each in variables]


WAYS = {
    "session": lambda optimizer, sparse: in_a_session(optimizer, sparse, True),
    "session, ref": lambda optimizer, sparse: in_a_session(optimizer, sparse, False),
    "eager": outside_of_graphs,
    "function": lambda *given: outside_of_graphs(*given, wrap=tf.function),
}
for _api in APIS:
    WAYS[_api] = lambda optimizer, sparse, api=_api: outside_of_graphs(
        to_keras(optimizer, api=api), sparse
    )
    WAYS[f"{_api}, function"] = lambda optimizer, sparse, api=_api: outside_of_graphs(
        to_keras(optimizer, api=api), sparse, tf.function
    )


@pytest.mark.in_turn(way=list(WAYS), cls=CLASSES, sparse=[False, True])
def test_values_per_variable(cls, way, sparse, fresh):
    expected = in_a_session(made(cls, "off"), sparse, True)
    assert not np.array_equal(expected[0], expected[1])
    for actual, wanted in zip(WAYS[way](made(cls, "require"), sparse), expected):
        np.testing.assert_array_equal(actual, wanted)


def counted(fresh, module, name):
    """Returns a list, to which each call of a function of a module adds an item."""
    calls, function = [], getattr(module, name)

    def count(*arguments):
        calls.append(arguments)
        return function(*arguments)

    fresh.setattr(module, name, count)
    return calls


def test_each_program_is_checked_once(fresh):
    checks = counted(fresh, check, "check")
    outside_of_graphs(made(LayerwiseRate, "require"), False)
    assert len(checks) == len(NAMES)
    outside_of_graphs(made(LayerwiseRate, "require"), False)
    assert len(checks) == len(NAMES)


@pytest.mark.parametrize("make", [Sgd, lambda: legacy_opt.AdamWeightDecayOptimizer(0.1, 0.1)])
def test_a_second_eager_step_traces_nothing(make, fresh):
    optimizer, variables = make(), [tf.Variable(START, name=name) for name in NAMES]
    optimizer.native = "require"
    traces = counted(fresh, Formulas, "formula_of")
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(START), each) for each in variables])
        assert len(traces) == len(NAMES)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ["Adam", "AdamW", "AdagradDecay"])
def test_a_second_eager_step_in_keras_traces_nothing(name, api, fresh):
    optimizer = {
        "Adam": lambda: legacy_opt.native.accelerate(v1.train.AdamOptimizer(0.1)),
        "AdamW": lambda: legacy_opt.AdamWOptimizer(0.1, 0.1),
        "AdagradDecay": lambda: legacy_opt.AdagradDecayOptimizer(0.1, None),
    }[name]()
    optimizer.native = "require"
    bridged, variable = to_keras(optimizer, api=api), tf.Variable(START)
    traces = counted(fresh, Formulas, "formula_of")
    for step in range(3):
        bridged.learning_rate = 0.1 / (1 + step)
        bridged.apply_gradients([(tf.constant(START), variable)])
        assert len(traces) == 1


def test_an_update_without_a_kernel_is_traced_once(fresh):
    class Sorted(Sgd):
        def rule(self, grad, value, slots, hyper):
            return tf.sort(grad), {}

    optimizer, variables = made(Sorted, "auto"), [tf.Variable(START), tf.Variable(START)]
    traces = counted(fresh, Formulas, "formula_of")
    with pytest.warns(NativeKernelWarning, match="Sort|TopK"):
        for _ in range(3):
            optimizer.apply_gradients([(tf.constant(START), each) for each in variables])
    assert len(traces) == len(variables)
