"""Tests the format of recorded rules: the catalogue, errors, and damaged documents."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded
from legacy_opt.recorded import operations, reading
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from tests.support.processes import programs
from tests.tools import rules

v1 = tf.compat.v1


@pytest.mark.every_lane
@pytest.mark.parametrize("name", sorted(set(rules.classes()) - set(rules.WITHOUT_RULE)))
def test_the_catalogue_has_the_same_bytes_on_each_tensorflow(name):
    with tf.Graph().as_default():
        text = recorded.dumps(recorded.record(rules.make(rules.classes()[name])))
    path = recorded.catalogue()[name]
    assert path.read_text(encoding="utf-8") == text, "run `make rules`"
    assert recorded.dumps(recorded.load(name)) == text


def test_the_catalogue_has_all_optimizers_with_a_rule():
    assert set(recorded.catalogue()) == set(rules.classes()) - set(rules.WITHOUT_RULE)


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


class Divided(legacy_opt.RuleOptimizer):
    def rule(self, grad, value, slots, hyper):
        return grad / grad.shape.num_elements(), {}


@pytest.mark.parametrize("variables", [None, {"w": [3, 4]}])
def test_a_rule_that_reads_the_shape_is_refused(variables):
    with pytest.raises(recorded.RecordError, match="the rule depends on the shape of the variable"):
        recorded.record(Divided(False, "Divided"), variables)


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
    assert [group.variables for group in record.groups] == [("kernel",), ("bias",)]


class WithoutDecayOfBiases(legacy_opt.LAMBOptimizer):
    def _do_use_weight_decay(self, name):
        return "bias" not in name


def test_names_that_only_code_knows_are_found():
    optimizer = WithoutDecayOfBiases(0.1)
    with pytest.raises(recorded.RecordError, match="treats some variables by their names: pass"):
        recorded.record(optimizer)
    record = recorded.record(optimizer, {"kernel": [3, 2], "bias": [3, 2]})
    assert [group.variables for group in record.groups] == [("kernel",), ("bias",)]


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
    with pytest.raises(recorded.RecordError, match="learning_rate was no number"):
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
    named = recorded.loads(
        recorded.dumps(record._replace(groups=(record.groups[0]._replace(variables=("a",)),)))
    )
    with pytest.raises(recorded.RecordError, match=r"no update for a variable 'w' .* has \['a'\]"):
        NumpyOptimizer(named, {"w": np.ones(2, np.float32)})


def changed(change):
    document = json.loads(recorded.dumps(recorded.load("AdagradDecayOptimizer")))
    change(document)
    return json.dumps(document)


def program(document):
    return document["groups"][0]["dense"]


DAMAGED = {
    "not a record: there is no format": lambda d: d.pop("format"),
    "version 2 of the format is not known": lambda d: d.update(version=2),
    "version True of the format": lambda d: d.update(version=True),
    "expected the names after, before": lambda d: d.update(more=1),
    "the operation 'Eval' is not known": lambda d: program(d)["nodes"].append(
        ["Eval", "float32", "scalar", [0]]
    ),
    "there is no earlier node 99": lambda d: program(d)["nodes"].append(
        ["Neg", "float32", "scalar", [99]]
    ),
    "there is no earlier node True": lambda d: program(d)["nodes"].append(
        ["Neg", "float32", "scalar", [True]]
    ),
    "Neg has no result of the level 'scalar'": lambda d: program(d)["nodes"].append(
        ["Neg", "float32", "scalar", [program(d)["value"]]]
    ),
    "value: there is no node -1": lambda d: program(d).update(value=-1),
    "there is no slot 'm'": lambda d: program(d)["changes"].update(m=["assign", 0]),
    "is no change": lambda d: program(d)["changes"].update(accumulator=["run", 0]),
    "layout: expected one of scalar": lambda d: d["groups"][0]["slots"]["accumulator"].update(
        layout="disk"
    ),
    "'1.0' is no number of the dtype 'float32'": lambda d: d["hyperparameters"][
        "learning_rate"
    ].update(value="1.0"),
    "expected a list of at most 20000": lambda d: program(d).update(nodes=[0] * 20001),
    "dtype: expected one of float32, float64": lambda d: d.update(dtype="complex64"),
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


def test_each_operation_of_kernels_is_known():
    from legacy_opt.native.compiler.operations import ELEMENTWISE

    assert set(operations.TABLE) == set(ELEMENTWISE) | set(operations.SUMS)


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
