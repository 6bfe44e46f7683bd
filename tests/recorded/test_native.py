"""Tests native kernels that train arrays in place. test_numpy.py compares their bits."""

import json
import pickle

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded
from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.updates import norms
from legacy_opt.native.updates.scaling import Factor, ScaledFormulas
from legacy_opt.programs.optimizers import formulas_of
from legacy_opt.programs.program import Function, Node, Program, sum_of_squares
from legacy_opt.recorded.native import NativeOptimizer
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from legacy_opt.recorded.records import Group, Record, Scalar, Slot, level_in_program, slot_inputs
from tests.recorded.references import with_two_rates
from tests.tools import rules

v1 = tf.compat.v1


@pytest.mark.parametrize("name", sorted(recorded.catalogue()))
def test_a_record_has_the_kernel_of_its_rule(name):
    """Tests that both have the same C source, so that legacy-opt-native has this kernel, too."""
    record, compared = recorded.load(name), 0
    with tf.Graph().as_default():
        optimizer = legacy_opt.native.accelerate(rules.make(rules.classes()[name]))
        if hasattr(optimizer, "_decays_at_zero"):
            optimizer._decays_at_zero = True  # as in records
        variable = v1.get_variable("w", [3, 4], use_resource=True)
        optimizer._create_slots([variable])
        optimizer._prepare()
        formulas, group = formulas_of(optimizer), record.group_of("w", [3, 4])
        for is_sparse, program in enumerate([group.dense, group.sparse]):
            if not isinstance(program, str):
                formula = formulas.formula_of(variable, bool(is_sparse))
                expected = emit(formula.program(), formula.slots)
                inputs = slot_inputs(group.slots, program.by_rows)
                assert emit(program, inputs) == expected
                if not is_sparse:
                    scaled = ScaledFormulas(formulas, [Factor("Mul", tf.ones([]))])
                    expected = emit(scaled.formula_of(variable, False).program(), formula.slots)
                    assert emit(program.scaled(), inputs) == expected
                compared += 1
    assert compared


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_sum_of_squares_is_that_of_the_global_norm(dtype):
    assert sum_of_squares(dtype) == norms.formula(tf.as_dtype(dtype)).program()


def input_(kind, name, level):
    return Node("Input", "float32", level, (), (kind, name))


def unusual_record(layout, by_rows=False, copies=1, slot="r"):
    """Returns a record with a slot that nothing needs, and several nodes for one scalar."""
    nodes = [input_("tensor", "gradient", "element"), input_("tensor", "value", "element")]
    nodes += [input_("slot", slot, level_in_program(layout, by_rows))]
    nodes += [input_("scalar", "rate", "scalar")] * copies
    nodes += [Node("Mul", "float32", nodes[2].level, (2, 3))]  # nothing reads it
    nodes += [Node("AddN", "float32", "scalar", tuple(range(3, 3 + copies)))]
    nodes += [Node("Mul", "float32", "element", (0, 4 + copies))]
    nodes += [Node("Sub", "float32", "element", (1, 5 + copies))]
    before = Function((input_("scalar", "rate", "scalar"),), {"rate": 0})
    program = Program(by_rows, tuple(nodes), 6 + copies, {})
    slots = {slot: Slot(layout, "float32", 0.5, slot)}
    group = Group(None, (2, None), slots, "not tried" if by_rows else program, program)
    hyper, nothing = {"rate": Scalar("float32", 0.25)}, Function((), {})
    return Record("Unusual", "float32", None, hyper, {}, before, nothing, (group,))


@pytest.mark.parametrize(
    "record",
    [
        unusual_record("matrix_row"),
        unusual_record("matrix_column"),
        unusual_record("element", copies=40),
        unusual_record("element", by_rows=True, copies=40),
        unusual_record("row", by_rows=True),
        unusual_record("element", slot="gradient"),
        unusual_record("element", by_rows=True, slot="value"),
    ],
)
def test_unusual_records_train_as_in_numpy(record):
    draw = np.random.RandomState(0)
    weights = {"w": draw.randn(4, 3).astype("f4")}
    rows = Rows(np.array([0, 2, 0]), draw.randn(3, 3).astype("f4"))
    whole = draw.randn(4, 3).astype("f4")
    for gradient in [rows] if isinstance(record.groups[0].dense, str) else [rows, whole]:
        expected, _ = train(NumpyOptimizer, record, weights, {"w": gradient})
        found, _ = train(NativeOptimizer, record, weights, {"w": gradient})
        np.testing.assert_array_equal(found["w"], expected["w"])


def test_kernels_with_the_same_source_and_other_scalars():
    weights = {"w": np.ones(5, np.float32), "b": np.ones(5, np.float32)}
    for names in "wb", "bw":
        in_order = {name: weights[name] for name in names}
        expected, _ = train(NumpyOptimizer, with_two_rates(), in_order, in_order)
        found, _ = train(NativeOptimizer, with_two_rates(), in_order, in_order)
        np.testing.assert_equal(found, expected)


@pytest.mark.parametrize(
    "record", [unusual_record("row"), unusual_record("matrix_row", by_rows=True)]
)
def test_slots_of_another_layout_are_refused(record):
    with pytest.raises(recorded.RecordError, match="has no native kernel: of the slot 'r'"):
        NativeOptimizer(record, {"w": np.ones((4, 3), np.float32)})


def train(optimizer_class, record, weights, gradients, **arguments):
    weights = {name: array.copy() for name, array in weights.items()}
    optimizer = optimizer_class(record, weights, **arguments)
    for _ in range(3):
        optimizer.step(gradients)
    return weights, optimizer.state.slots


@pytest.mark.parametrize(
    "name", ["AdafactorOptimizer", "LAMBOptimizer", "LazyAdamOptimizer", "AdagradDecayOptimizer"]
)
def test_the_number_of_threads_changes_nothing(name):
    draw = np.random.RandomState(0)
    record = recorded.load(name)
    # The array has several blocks of 65536 elements.
    weights = {"w": draw.randn(300, 701).astype("f4"), "t": draw.randn(9000, 8).astype("f4")}
    ids = draw.randint(0, 9000, 20000)
    gradients = {"w": draw.randn(300, 701).astype("f4")}
    if not isinstance(record.group_of("t", [9000, 8]).sparse, str):
        gradients["t"] = Rows(ids, draw.randn(20000, 8).astype("f4"))
    expected = train(NumpyOptimizer, record, weights, gradients)
    for threads in 1, 2, 5:
        for one, other in zip(
            train(NativeOptimizer, record, weights, gradients, threads=threads), expected
        ):
            np.testing.assert_equal(one, other)


def test_clipping_and_changed_hyperparameters():
    with tf.Graph().as_default():
        optimizer = legacy_opt.ClipByGlobalNormOptimizer(v1.train.MomentumOptimizer(0.1, 0.9), 0.5)
        record = recorded.record(optimizer)
    gradients = {"w": np.float32([3, 4]), "t": Rows(np.int32([1, 1]), np.ones((2, 1), "f4"))}
    found = []
    for optimizer_class in NumpyOptimizer, NativeOptimizer:
        weights = {"w": np.ones(2, "f4"), "t": np.ones((2, 1), "f4")}
        optimizer = optimizer_class(record, weights)
        optimizer.step(gradients)
        optimizer.hyperparameters.update(learning_rate=0.7, clip_norm=2.0)
        optimizer.step(gradients)
        found.append(weights)
    np.testing.assert_equal(*found)


def test_arrays_that_kernels_cannot_change():
    record, array = recorded.load("AdamOptimizer"), np.ones([4, 4], "f4")
    read_only = array.copy()
    read_only.flags.writeable = False
    for wrong in array.T[:2], array[:, :2], read_only:
        with pytest.raises(recorded.RecordError, match="'w' is not a contiguous array that can"):
            NativeOptimizer(record, {"w": wrong})


def test_arrays_that_were_replaced():
    record, array = recorded.load("AdamOptimizer"), np.ones([4, 4], "f4")
    for wrong in array.astype("f8"), np.asfortranarray(array), array[:2]:
        optimizer = NativeOptimizer(record, {"w": array.copy()})
        optimizer.state.slots["w"]["m"] = wrong
        with pytest.raises(recorded.RecordError, match="'w/m' is"):
            optimizer.step({"w": array})
    found = []
    for optimizer_class in NumpyOptimizer, NativeOptimizer:
        optimizer = optimizer_class(record, {"w": array.copy()})
        optimizer.step({"w": array})
        optimizer.state.shared["beta1_power"] = np.float32(0.5)
        optimizer = pickle.loads(pickle.dumps(optimizer))
        optimizer.step({"w": array})
        found.append(optimizer.variables["w"])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["MomentumOptimizer", "AdamWOptimizer"])
def test_rows_that_are_a_view_of_the_variable(name):
    found = []
    for optimizer_class in NumpyOptimizer, NativeOptimizer:
        weights = {"w": np.random.RandomState(0).randn(7, 5).astype("f4")}
        optimizer = optimizer_class(recorded.load(name), weights)
        for _ in range(2):
            rows = weights["w"][:5]
            rows = rows.copy() if optimizer_class is NumpyOptimizer else rows
            optimizer.step({"w": Rows(np.array([1, 2, 0, 3, 4]), rows)})
        found.append(weights["w"])
    np.testing.assert_array_equal(*found)


@pytest.mark.usefixtures("no_compiler")
def test_without_compiler():
    with pytest.raises(recorded.RecordError, match=r"no native kernel: There is no C\+\+ comp"):
        NativeOptimizer(recorded.load("AdamOptimizer"), {"w": np.ones(2, "f4")})


def test_names_in_a_record_are_no_code():
    text = '*/ int evil = system("touch evil"); /*'
    document = json.loads(recorded.dumps(recorded.load("MomentumOptimizer")).replace("mom", "m"))
    document = json.loads(json.dumps(document).replace('"mentum"', json.dumps(text)))
    record = recorded.loads(json.dumps(document))
    group = record.groups[0]
    assert text in group.slots and text in record.hyperparameters
    assert "evil" not in emit(group.dense, slot_inputs(group.slots, False))


def test_too_many_slots_for_a_kernel():
    document = json.loads(recorded.dumps(recorded.load("MomentumOptimizer")))
    for group in document["groups"]:
        slot = group["slots"]["momentum"]
        group["slots"].update({f"s{i}": dict(slot, suffix=f"s{i}") for i in range(9)})
    record = recorded.loads(json.dumps(document))
    with pytest.raises(recorded.RecordError, match="the record has no native kernel: .*slots"):
        NativeOptimizer(record, {"w": np.ones(2, "f4")})
