"""Tests the rows of dynamic embedding tables with a stand-in for TensorFlow Recommenders Addons.

`make clients` trains with TensorFlow Recommenders Addons itself.
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import to_keras, to_v1
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native.updates import kernel_choice
from legacy_opt.programs.program import UnsupportedError

v1 = tf.compat.v1
DIM = 4
START = np.random.RandomState(1).normal(size=(3, DIM)).astype(np.float32)
GRADS = np.random.RandomState(2).normal(size=(5, *START.shape)).astype(np.float32)
Variable = type(tf.Variable(0.0))


class Rows(Variable):
    """Rows of a table, like TrainableWrapper: `shape` has no rows, and a read looks them up again.

    Args:
      table: the values of all rows.
    """

    shape = tf.TensorShape([0, DIM])

    def __init__(self, table):
        self.table = table
        super().__init__(tf.zeros([0, DIM]), shape=tf.TensorShape([None, DIM]), name="rows")

    def prefetch_values(self):
        self.assign(self.table, read_value=False)

    def read_value(self, do_prefetch=True):
        if do_prefetch:
            self.prefetch_values()
        return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)


def with_dynamic_slots(optimizer):
    """Makes the optimizer create slots of class `Rows`, like DynamicEmbeddingOptimizer does."""
    slots = {}

    def make_slot(variable, initializer, shape, dtype, slot_name, op_name):
        del shape, dtype, op_name
        if slot_name not in slots:
            first = np.reshape(initializer(shape=[1]), -1)[0]
            slots[slot_name] = Rows(np.full_like(variable.table, first))
        return slots[slot_name]

    def make_zeros(variable, slot_name, op_name):
        return make_slot(variable, tf.zeros, None, None, slot_name, op_name)

    optimizer._get_or_make_slot_with_initializer = make_slot
    optimizer._zeros_slot = make_zeros
    optimizer.get_slot = lambda variable, name: slots[name]
    optimizer.get_slot_names = lambda: list(slots)
    return optimizer


def train(optimizer):
    """Trains all rows of a table, like TensorFlow Recommenders Addons. Returns the rows."""
    rows = Rows(START)
    for grad in GRADS:
        optimizer._create_slots([rows])
        tables = [rows, *(optimizer.get_slot(rows, name) for name in optimizer.get_slot_names())]
        for each in tables:
            each.prefetch_values()
        optimizer._prepare()
        optimizer._resource_apply_dense(tf.constant(grad), rows)
        optimizer._finish([], "step")
        for each in tables:
            each.table = each.read_value(do_prefetch=False).numpy()
    return rows.table


def without_kernels(optimizer):
    optimizer.use_fused_kernels = False
    return optimizer


DecayedAdam = legacy_opt.extend_with_decoupled_weight_decay(legacy_opt.LazyAdamOptimizer)
OPTIMIZERS = {
    "LazyAdam": lambda: legacy_opt.LazyAdamOptimizer(0.1),
    "LazyAdam, a rule": lambda: without_kernels(legacy_opt.LazyAdamOptimizer(0.1)),
    "LazyAdam, a rule after a decay": lambda: without_kernels(DecayedAdam(0.01, 0.1)),
    "RegAdagrad": lambda: legacy_opt.RegAdagradOptimizer(0.1),
    "DiffGrad, which reads slots after a write": lambda: legacy_opt.DiffGradOptimizer(0.1),
    "MomentumW": lambda: legacy_opt.MomentumWOptimizer(0.01, 0.1, 0.9),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_rows_train_like_a_variable(name):
    variable, optimizer = tf.Variable(START), OPTIMIZERS[name]()
    for grad in GRADS:
        optimizer.apply_gradients([(tf.constant(grad), variable)])
    np.testing.assert_array_equal(train(with_dynamic_slots(OPTIMIZERS[name]())), variable.numpy())


@pytest.mark.parametrize("name", ["LazyAdam", "MomentumW"])
def test_kernels_do_not_update_rows(name, monkeypatch):
    monkeypatch.setattr(kernel_choice, "_warned", set())
    expected = train(with_dynamic_slots(OPTIMIZERS[name]()))
    optimizer = OPTIMIZERS[name]()
    optimizer.native = "auto"
    with pytest.warns(NativeKernelWarning, match="'rows:0' is a dynamic embedding table"):
        np.testing.assert_array_equal(train(with_dynamic_slots(optimizer)), expected)
    optimizer = OPTIMIZERS[name]()
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match="'rows:0' is a dynamic embedding table"):
        train(with_dynamic_slots(optimizer))


class Typed(legacy_opt.RuleOptimizer):
    slots = {"count": legacy_opt.Slot(dtype=tf.int64)}

    def __init__(self):
        super().__init__(False, "Typed")


REFUSED = {
    "Typed": (Typed, "its slot 'count' has dtype int64, and the table float32"),
    "AdamAsyncOptimizer": (
        legacy_opt.AdamAsyncOptimizer,
        "its slot 'beta1_power' does not have the",
    ),
    "AdafactorOptimizer": (legacy_opt.AdafactorOptimizer, "its slot 'vr' does not have the shape"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_slots_unlike_the_rows_are_refused(name):
    make, why = REFUSED[name]
    expected = f"{name} cannot train the dynamic embedding table of 'rows:0': {why}"
    with pytest.raises(ValueError, match=expected + ".*MultiOptimizer"):
        train(with_dynamic_slots(make()))


@pytest.mark.parametrize(
    "make, why",
    [
        (legacy_opt.LazyAdamOptimizer, r"DynamicEmbeddingOptimizer\(LazyAdamOptimizer"),
        (lambda: to_v1("sgd"), "optimizer that to_v1 has converted cannot train"),
        (lambda: to_keras(legacy_opt.LazyAdamOptimizer()), "optimizer that to_keras has converted"),
        (
            lambda: legacy_opt.GradientAccumulationOptimizer(legacy_opt.LazyAdamOptimizer(), 2),
            "GradientAccumulationOptimizer cannot train.* each batch looks up other rows",
        ),
        (
            lambda: legacy_opt.MovingAverageOptimizer(legacy_opt.LazyAdamOptimizer()),
            "MovingAverageOptimizer cannot train.* it averages all rows",
        ),
    ],
)
def test_what_does_not_write_rows_back_is_refused(make, why):
    with pytest.raises(ValueError, match=why):
        make().apply_gradients([(tf.constant(START), Rows(START))])


def test_clipping_of_rows_is_refused_in_the_constructor():
    with pytest.raises(ValueError, match="VariableClippingOptimizer cannot train.* max_norm=…"):
        legacy_opt.VariableClippingOptimizer(
            legacy_opt.LazyAdamOptimizer(), [(Rows(START), [1])], 0.5
        )
