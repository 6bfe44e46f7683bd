"""Tests the format of recorded rules: the catalogue, errors, and damaged documents."""

import json
import os
import pickle
import types

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded
from legacy_opt.recorded import reading
from legacy_opt.recorded.numpy import NumpyLibrary, NumpyOptimizer, Rows
from tests.support.processes import programs
from tests.tools import rules

v1 = tf.compat.v1


@pytest.mark.one_lane
@pytest.mark.parametrize("name", sorted(set(rules.classes()) - set(rules.WITHOUT_RULE)))
def test_the_catalogue_has_the_same_bytes_on_each_tensorflow(name):
    with tf.Graph().as_default():
        text = recorded.dumps(recorded.record(rules.make(rules.classes()[name])))
    assert name in recorded.catalogue(), "run `make rules`"
    path = recorded.catalogue()[name]
    assert path.read_text(encoding="utf-8") == text, "run `make rules`"
    assert recorded.dumps(recorded.load(name)) == text


def test_the_catalogue_has_all_optimizers_with_a_rule():
    recordable = set(rules.classes()) - set(rules.WITHOUT_RULE)
    assert set(recorded.catalogue()) == recordable, "run `make rules`"


@pytest.mark.parametrize(
    "make, problem",
    [
        (lambda: legacy_opt.ShampooOptimizer(0.1), "ShampooOptimizer cannot be recorded: kernels"),
        (
            lambda: legacy_opt.MovingAverageOptimizer(v1.train.AdamOptimizer()),
            "MovingAverageOptimizer cannot be recorded: it is a wrapper: record the optimizer",
        ),
        (lambda: "Adam", "record takes a tf.compat.v1.train.Optimizer, got 'Adam'"),
    ],
)
def test_what_cannot_be_recorded_says_why(make, problem):
    with tf.Graph().as_default(), pytest.raises(recorded.RecordError, match=problem):
        recorded.record(make())


class OfIntegers(legacy_opt.RuleOptimizer):
    def rule(self, grad, value, slots, hyper):
        return tf.cast(tf.cast(grad, tf.int32) // tf.cast(value, tf.int32), grad.dtype), {}


def test_a_record_that_could_not_be_read_is_not_made():
    with pytest.raises(recorded.RecordError, match="FloorDiv divides by something other than a"):
        recorded.record(OfIntegers(False, "OfIntegers"))


def test_pickled_records_find_parts_that_have_moved():
    record = recorded.load("LazyAdamOptimizer")
    text = pickle.dumps(record, protocol=0)
    assert b"legacy_opt.programs.program" in text
    before = text.replace(b"legacy_opt.programs.program", b"legacy_opt.recorded.records")
    assert pickle.loads(before) == record


class Divided(legacy_opt.RuleOptimizer):
    def rule(self, grad, value, slots, hyper):
        return grad / grad.shape.num_elements(), {}


class OfOneColumn(legacy_opt.RuleOptimizer):
    def rule(self, grad, value, slots, hyper):
        return (2.0 if value.shape.rank and value.shape[-1] == 1 else 1.0) * grad, {}


class OfFiveAxes(legacy_opt.RuleOptimizer):
    def rule(self, grad, value, slots, hyper):
        return (2.0 if value.shape.rank == 5 else 1.0) * grad, {}


@pytest.mark.parametrize("cls", [Divided, OfOneColumn, OfFiveAxes])
def test_a_rule_that_reads_the_shape_needs_the_shapes(cls):
    with pytest.raises(recorded.RecordError, match="depends on the shape of the variable: pass"):
        recorded.record(cls(False, "Mine"))
    record = recorded.record(cls(False, "Mine"), {"w": [3, 4]})
    NumpyOptimizer(record, {"w": np.zeros([3, 4], np.float32)})
    with pytest.raises(recorded.RecordError, match=r"was made for the shape \[3, 4\]"):
        NumpyOptimizer(record, {"w": np.zeros([4, 4], np.float32)})


@pytest.mark.parametrize(
    "make",
    [
        lambda: legacy_opt.LAMBOptimizer(0.1, exclude_from_weight_decay=["bias"]),
        lambda: legacy_opt.AdamWeightDecayOptimizer(0.1, 0.1, exclude_from_weight_decay=["bias"]),
        lambda: legacy_opt.LARSOptimizer(0.1, skip_list=["bias"]),
    ],
)
def test_an_optimizer_with_patterns_of_names_needs_the_names(make):
    with pytest.raises(recorded.RecordError, match=r"because of \w+: pass variables"):
        recorded.record(make())
    record = recorded.record(make(), {"kernel": [3, 2], "bias": [3, 2]})
    assert [list(group.variables) for group in record.groups] == [["kernel"], ["bias"]]


class WithoutDecayOfBiases(legacy_opt.LAMBOptimizer):
    def _do_use_weight_decay(self, param_name):
        return "bias" not in param_name


class SlowKernels(legacy_opt.RuleOptimizer):
    def __init__(self):
        super().__init__(False, "SlowKernels", learning_rate=0.5)

    def hyper_for(self, variable):
        hyper = super().hyper_for(variable)
        factor = 0.1 if "kernel" in variable.op.name else 1.0
        return types.SimpleNamespace(learning_rate=factor * hyper.learning_rate)

    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * grad, {}


@pytest.mark.parametrize("make", [lambda: WithoutDecayOfBiases(0.1), SlowKernels])
def test_a_method_that_gets_variables_needs_the_names(make):
    with pytest.raises(recorded.RecordError, match=r"because of its method \w+: pass variables"):
        recorded.record(make())
    record = recorded.record(make(), {"kernel": [3, 2], "bias": [3, 2]})
    assert [list(group.variables) for group in record.groups] == [["kernel"], ["bias"]]


def test_a_list_of_variables_to_decay():
    shapes = {"kernel": [3], "bias": [3], "scale": [3]}
    optimizer = legacy_opt.MomentumWOptimizer(0.5, 0.1, 0.0)
    record = recorded.record(optimizer, shapes, decay_var_list=["kernel"])
    weights = {name: np.ones(3, np.float32) for name in shapes}
    NumpyOptimizer(record, weights).step({name: np.ones(3, np.float32) for name in shapes})
    assert [weights[name][0] for name in shapes] == [np.float32(0.4), *2 * [np.float32(0.9)]]
    (group,) = recorded.record(optimizer, shapes, decay_var_list=[]).groups
    assert group == record.groups[1]._replace(variables=group.variables)
    assert recorded.record(optimizer, shapes).groups[0].dense == record.groups[0].dense
    for wrong in ["other"], "kernel":
        with pytest.raises(recorded.RecordError, match="decay_var_list: pass names of `variables`"):
            recorded.record(optimizer, shapes, decay_var_list=wrong)
    with pytest.raises(recorded.RecordError, match="LazyAdamOptimizer has no such list"):
        recorded.record(legacy_opt.LazyAdamOptimizer(0.1), shapes, decay_var_list=["kernel"])


def test_recording_changes_nothing():
    with tf.Graph().as_default() as graph:
        optimizer = v1.train.AdamOptimizer(0.1)
        before = dict(vars(optimizer))
        recorded.record(optimizer)
        assert vars(optimizer) == before and type(optimizer) is v1.train.AdamOptimizer
        assert not graph.get_operations()


@pytest.mark.parametrize("cls", [legacy_opt.LazyAdamOptimizer, v1.train.AdamOptimizer])
def test_a_learning_rate_schedule_of_a_graph_has_no_value(cls):
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        record = recorded.record(cls(v1.train.exponential_decay(0.1, step, 9, 0.5), beta1=0.8))
    assert record.hyperparameters["learning_rate"].value is None
    assert record.hyperparameters["beta1"].value == np.float32(0.8)
    plain = recorded.load(cls.__name__)
    assert record.groups == plain.groups and record.before == plain.before


def test_hyperparameters_that_are_no_numbers_must_be_given():
    with tf.Graph().as_default():
        record = recorded.record(v1.train.GradientDescentOptimizer(lambda: tf.constant(0.1)))
        other = recorded.record(legacy_opt.LazyAdamOptimizer(tf.Variable(0.1)))
    weights = {"w": np.ones(2, np.float32)}
    with pytest.raises(recorded.RecordError, match="or --set learning_rate=… on the command"):
        NumpyOptimizer(other, weights)
    NumpyOptimizer(other, weights, learning_rate=0.5)
    assert record.hyperparameters["learning_rate"].value in (None, np.float32(0.1))
    with pytest.raises(recorded.RecordError, match="has no hyperparameter 'rate', but beta1"):
        NumpyOptimizer(other, weights, rate=0.5)


def test_hyperparameters_may_change_between_steps():
    weights = {"w": np.zeros(2, np.float32)}
    optimizer = NumpyOptimizer(recorded.load("GradientDescentOptimizer"), weights)
    for rate in 0.5, 2.0:
        optimizer.hyperparameters["learning_rate"] = rate
        optimizer.step({"w": np.ones(2, np.float32)})
    np.testing.assert_array_equal(weights["w"], np.float32([-2.5, -2.5]))


def test_an_integer_stays_an_integer():
    record = recorded.record(legacy_opt.LazyAdamOptimizer(1))
    weights = {"w": np.zeros(2, np.float32)}
    with pytest.raises(recorded.RecordError, match="learning_rate was an integer"):
        NumpyOptimizer(record, weights, learning_rate=0.25)
    optimizer = NumpyOptimizer(record, weights, learning_rate=2)
    optimizer.hyperparameters["learning_rate"] = 0.5
    with pytest.raises(recorded.RecordError, match="so it cannot be 0.5"):
        optimizer.step({})
    optimizer.hyperparameters["lr"] = optimizer.hyperparameters.pop("learning_rate")
    with pytest.raises(recorded.RecordError, match="no hyperparameter 'lr'"):
        optimizer.step({})


@pytest.mark.parametrize("dtype", [tf.int32, tf.float32])
def test_a_slot_that_takes_the_old_value_of_another(dtype):
    class Delayed(legacy_opt.RuleOptimizer):
        slots = {"new": legacy_opt.Slot(dtype=dtype), "old": legacy_opt.Slot(dtype=dtype)}

        def rule(self, grad, value, slots, hyper):
            return grad * tf.cast(slots.old, grad.dtype), {"new": slots.new + 1, "old": slots.new}

    weights = {"w": np.ones(2, np.float32)}
    optimizer = NumpyOptimizer(recorded.record(Delayed(False, "D")), weights, flush_denormals=False)
    for expected in 1.0, 1.0, 0.0, -2.0:
        optimizer.step({"w": np.ones(2, np.float32)})
        assert weights["w"].tolist() == [expected] * 2


@pytest.mark.parametrize("name", ["LAMBOptimizer", "AdafactorOptimizer", "AdagradDecayOptimizer"])
def test_variables_without_elements(name):
    weights = {"w": np.ones([0, 3], np.float32), "v": np.ones([3, 0], np.float32)}
    NumpyOptimizer(recorded.load(name), weights).step(dict(weights))


def test_the_last_step_of_32_bits():
    step = tf.compat.v1.get_variable("step_of_32_bits", [], tf.int32, use_resource=True)
    record = recorded.record(legacy_opt.AdagradDecayOptimizer(0.1, step))
    optimizer = NumpyOptimizer(record, {"w": np.ones(2, np.float32)})
    optimizer.state.global_step = 2**31
    optimizer.step({"w": np.ones(2, np.float32)})


def test_what_a_record_cannot_have():
    with pytest.raises(recorded.RecordError, match="dtype float16, as learning_rate has"):
        recorded.record(v1.train.GradientDescentOptimizer(np.float16(0.1)))
    with tf.Graph().as_default():
        beta = v1.placeholder(tf.float32)
        with pytest.raises(recorded.RecordError, match="AdamOptimizer cannot be recorded"):
            recorded.record(v1.train.AdamOptimizer(0.1, beta))
        record = recorded.record(v1.train.GradientDescentOptimizer(beta))
    assert record.hyperparameters["learning_rate"].value is None
    record = recorded.record(v1.train.AdamOptimizer(lambda: 0.1))
    assert record.hyperparameters["learning_rate"].value is None


def test_denormal_sums_and_constants_are_zero():
    class Signs(legacy_opt.RuleOptimizer):
        def rule(self, grad, value, slots, hyper):
            return tf.sign(grad) + grad / tf.maximum(tf.abs(grad), 1e-40), {}

    record = recorded.record(Signs(False, "Signs"))
    weights = {"w": np.zeros([3, 1], np.float32)}
    tiny = np.float32([[0.8e-38], [0.8e-38], [1.0]])
    NumpyOptimizer(record, weights).step({"w": Rows(np.array([1, 1, 2]), tiny)})
    np.testing.assert_array_equal(weights["w"], [[0], [np.nan], [-2]])
    weights = {"w": np.zeros(2, np.float32)}
    record = recorded.load("GradientDescentOptimizer")
    step = {"w": np.full(2, 1e20, np.float32)}
    NumpyOptimizer(record, weights, learning_rate=1e-40).step(step)
    assert not weights["w"].any()


def test_rows_of_equal_ids_are_added_in_their_order():
    values = np.float32([[1e8], [1.0], [-1e8], [-0.0]])
    ids, sums = Rows(np.array([3, 3, 3, 1]), values).summed()
    assert ids.tolist() == [1, 3] and sums[1, 0] == np.float32(1e8) + np.float32(1) - np.float32(
        1e8
    )
    assert np.signbit(sums[0, 0])


@pytest.mark.parametrize(
    "gradient, problem",
    [
        (np.ones(3, np.float32), r"float32 of the shape \[3\], expected float32 of the shape"),
        (np.ones([2, 3]), "the gradient is float64"),
        (Rows(np.array([-1]), np.ones([1, 3], np.float32)), r"the id -1 is not in \[0, 2\)"),
        (Rows(np.array([0, 2]), np.ones([2, 3], np.float32)), r"the id 2 is not in \[0, 2\)"),
        (
            Rows(np.array([0, 1]), np.ones([1, 3], np.float32)),
            r"expected float32 of the shape \[2, 3",
        ),
        (Rows(np.array([0.0]), np.ones([1, 3], np.float32)), "ids must be integers"),
    ],
)
def test_gradients_that_do_not_fit_change_nothing(gradient, problem):
    weights = {"a": np.ones([2, 3], np.float32), "b": np.ones([2, 3], np.float32)}
    optimizer = NumpyOptimizer(recorded.load("AdamOptimizer"), weights)
    with pytest.raises(recorded.RecordError, match=problem):
        optimizer.step({"a": np.ones([2, 3], np.float32), "b": gradient})
    assert optimizer.state.global_step == 0
    np.testing.assert_array_equal(weights["a"], np.ones([2, 3]))


def test_another_variable_is_refused():
    record = recorded.load("LazyAdamOptimizer")
    with pytest.raises(recorded.RecordError, match="has the dtype float64, but the record is for"):
        NumpyOptimizer(record, {"w": np.ones(2)})
    optimizer = NumpyOptimizer(record, {"w": np.ones(2, np.float32)})
    with pytest.raises(recorded.RecordError, match="there is no variable 'v'"):
        optimizer.step({"v": np.ones(2, np.float32)})
    with pytest.raises(recorded.RecordError, match="the variables .* share memory"):
        NumpyOptimizer(record, dict.fromkeys("wv", np.ones(2, np.float32)))
    both = np.ones((3, 4), np.float32)
    for part in both[:], both[1], both.T, both.reshape(-1):
        with pytest.raises(recorded.RecordError, match="the variables 'w' and 'v' share memory"):
            NumpyOptimizer(record, {"w": both, "u": np.ones(2, np.float32), "v": part})
    NumpyOptimizer(record, {"w": both[:, ::2], "v": both[:, 1::2]})  # disjoint
    group = record.groups[0]._replace(variables={"a": (2,)}, ranks=None)
    named = recorded.loads(recorded.dumps(record._replace(groups=(group,))))
    with pytest.raises(recorded.RecordError, match=r"no update for a variable 'w' .* has \['a'\]"):
        NumpyOptimizer(named, {"w": np.ones(2, np.float32)})


def changed(change):
    document = json.loads(recorded.dumps(recorded.load("AdagradDecayOptimizer")))
    change(document)
    return json.dumps(document)


def program(document):
    return document["groups"][0]["dense"]


def with_node(*nodes):
    """Returns a change of a document: more nodes in its first program."""
    return lambda d: program(d)["nodes"].extend(map(list, nodes))


def with_field(name, value, part=lambda d: d["groups"][0]):
    return lambda d: part(d).update({name: value})


ONE = ["Const", "bool", "scalar", [], True]
DAMAGED = {
    "not a record: there is no format": lambda d: d.pop("format"),
    "version 3 of the format is not known": lambda d: d.update(version=3),
    "legacy_opt reads version 2. Record the optimizer again": lambda d: d.update(version=1),
    "version True of the format": lambda d: d.update(version=True),
    "expected the names after, before": lambda d: d.update(more=1),
    "optimizer: expected a name, got ''": lambda d: d.update(optimizer=""),
    "dtype: expected one of float32, float64": lambda d: d.update(dtype="complex64"),
    "a name has two meanings": lambda d: d["fixed"].update(
        learning_rate={"dtype": "float32", "value": "0x0.0p+0"}
    ),
    "nonzero: expected one of accumulator_decay_rate": lambda d: d.update(nonzero=["momentum"]),
    "initial: expected one of accumulator_decay_rate": lambda d: d["initial"].update(
        accumulator="beta"
    ),
    "initial: expected one of accumulator": lambda d: d["initial"].update(m="learning_rate"),
    "clipping: expected one of rows": lambda d: d.update(clipping="columns"),
    "after: 'x' is no shared variable": lambda d: d["after"].update(nodes=[ONE], results={"x": 0}),
    "results: there is no node 999": lambda d: d["before"]["results"].update(x=999),
    "'1.0' is no number of the dtype 'float32'": lambda d: d["hyperparameters"][
        "learning_rate"
    ].update(value="1.0"),
    "'0xzz' is no number": lambda d: d["hyperparameters"]["learning_rate"].update(value="0xzz"),
    "a group has either variables or ranks": with_field("ranks", None),
    "ranks: (1,) has no rank": with_field("ranks", [1]),
    "ranks: (2, 1) has no rank": with_field("ranks", [2, 1]),
    "slots: expected names with values, got []": with_field("slots", []),
    "first: expected a program of rows": with_field("first", "none"),
    "layout: expected one of scalar": lambda d: d["groups"][0]["slots"]["accumulator"].update(
        layout="disk"
    ),
    "by_rows is 1": with_field("by_rows", 1, program),
    "value: there is no node -1": with_field("value", -1, program),
    "value: node 0 has another dtype or shape": lambda d: program(d).update(
        nodes=[ONE], value=0, changes={}
    ),
    "there is no slot 'm'": lambda d: program(d)["changes"].update(m=["assign", 0]),
    "is no change": lambda d: program(d)["changes"].update(accumulator=["run", 0]),
    "expected a list of at most 40000": with_field("nodes", [0] * 40001, program),
    "more than 40000 nodes and operands": with_field(
        "nodes",
        [["Const", "float32", "scalar", [], "0x0.0p+0"]]
        + 50 * [["AddN", "float32", "scalar", 999 * [0]]],
        program,
    ),
    "a node has an operation, a dtype": with_node(["Neg"]),
    "the operation 'Eval' is not known": with_node(["Eval", "float32", "scalar", [0]]),
    "there is no earlier node 99": with_node(["Neg", "float32", "scalar", [99]]),
    "there is no earlier node True": with_node(["Neg", "float32", "scalar", [True]]),
    "Neg does not have 2 operands": with_node(["Neg", "float32", "scalar", [0, 0]]),
    "Neg of ['bool'] is no bool": with_field(
        "nodes", [ONE, ["Neg", "bool", "scalar", [0]]], program
    ),
    "Const has a detail and no operands": with_node(["Const", "bool", "scalar", [0], True]),
    "[1, 2] is no input": with_node(["Input", "bool", "scalar", [], [1, 2]]),
    "there is no input ['scalar', 'x']": with_node(
        ["Input", "bool", "scalar", [], ["scalar", "x"]]
    ),
    "FloorDiv divides by something other": with_field(
        "nodes",
        [["Const", "int64", "scalar", [], 0], ["FloorDiv", "int64", "scalar", [0, 0]]],
        program,
    ),
    "Neg has no result of the level 'scalar'": lambda d: program(d)["nodes"].append(
        ["Neg", "float32", "scalar", [program(d)["value"]]]
    ),
    "an update of rows has a sum": lambda d: d["groups"][0]["sparse"]["nodes"].append(
        ["Sum", "float32", "scalar", [d["groups"][0]["sparse"]["value"]]]
    ),
}


@pytest.mark.parametrize("problem", list(DAMAGED))
def test_damaged_documents_are_refused(problem):
    with pytest.raises(recorded.RecordError) as error:
        recorded.loads(changed(DAMAGED[problem]))
    assert problem in str(error.value)


@pytest.mark.parametrize("text", ["", "[" * 100000, "{}", "null", b"\xff", '{"format": 1}'])
def test_other_texts_are_no_records(text):
    with pytest.raises(recorded.RecordError, match="^not a record"):
        recorded.loads(text)


def test_files(tmp_path):
    path = tmp_path / "rule.json"
    recorded.save(recorded.load("AdamOptimizer"), path)
    assert recorded.load(path) == recorded.load("AdamOptimizer")
    assert os.listdir(str(tmp_path)) == ["rule.json"]
    with pytest.raises(recorded.RecordError, match="is neither a file nor a recorded optimizer"):
        recorded.load("Adamm")
    path.write_bytes(b" " * (reading.MOST_BYTES + 1))
    with pytest.raises(recorded.RecordError, match=f"at most {reading.MOST_BYTES} bytes"):
        recorded.load(path)


def test_floats_become_integers():
    floats = np.array([2.9, -2.9, 3e9, -1e20, np.nan, np.inf])
    lowest = -(2**31)
    with np.errstate(all="ignore"):
        narrow, wide = (NumpyLibrary().cast(floats, dtype) for dtype in ("int32", "int64"))
    assert narrow.tolist() == [2, -2, lowest, lowest, lowest, lowest]
    assert wide[2:4].tolist() == [3 * 10**9, -(2**63)]


PROGRAM = """
import sys

sys.modules["tensorflow"] = None  # its import fails
import numpy as np
import legacy_opt
from legacy_opt import recorded
from legacy_opt.recorded.numpy import NumpyOptimizer

weights = {"w": np.ones([3, 2], np.float32)}
optimizer = NumpyOptimizer(recorded.load("AdamOptimizer"), weights)
optimizer.step({"w": np.ones([3, 2], np.float32)})
assert weights["w"][0, 0] < 1
assert getattr(legacy_opt, "what_pickle_asks_for", None) is None
try:
    legacy_opt.AdamWOptimizer
except ImportError as error:
    print(error)
"""


def test_programs_without_tensorflow(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = programs.run(path, seconds=60)
    assert done.returncode == 0, done.stderr
    assert "legacy_opt needs TensorFlow 1.15 or newer" in done.stdout
