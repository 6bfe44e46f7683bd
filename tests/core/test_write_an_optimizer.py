"""Tests of the optimizers and the statements on the page docs/write_an_optimizer.md."""

import functools
import inspect
import re

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras
from tests.support import oracles, problems, rules, running
from tests.support.keras import keras_ways
from tests.support.optimizer_cases.diffgrad import DiffGrad
from tests.support.paths import DOCS

v1 = tf.compat.v1
PAGE = DOCS / "write_an_optimizer.md"
MICRO_BATCHES = 4


class AccumulatedSGD(oracles.Oracle):
    def __init__(self, value):
        super().__init__(value)
        self.slots = {"total": np.zeros_like(value)}
        self.calls = 0

    def update(self, g, at, step):
        total = self.slots["total"]
        total[at] += g
        self.calls += 1
        if self.calls % MICRO_BATCHES == 0:
            self.value -= self.hyper(0.1) * total / MICRO_BATCHES
            total[...] = 0


DIFFGRAD = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
EXAMPLES = {
    "DiffGrad": (
        lambda _: rules.MyDiffGradOptimizer(0.01),
        functools.partial(DiffGrad, name="w", **DIFFGRAD),
    ),
    "AccumulatedSGD": (lambda _: rules.AccumulatedSGDOptimizer(0.1, MICRO_BATCHES), AccumulatedSGD),
}
KERAS_WAYS = {"eager": keras_ways.eager, "function": keras_ways.function, "graph": keras_ways.graph}


def final_slots_only(trace):
    """Returns a trace of `keras_ways` without the slots of earlier steps."""
    slots = {key: slot for key, slot in trace.slots.items() if key[0] in trace.steps[0]}
    return running.Trace(trace.steps, slots)


@pytest.mark.pairwise(
    name=list(EXAMPLES), kind=["dense", "sparse", "duplicates"], dtype=["float32", "float64"]
)
def test_the_examples_equal_their_formulas(name, kind, dtype):
    make, make_oracle = EXAMPLES[name]
    problem = problems.make(kind, dtype)
    trace = running.session_ref(problem, make)
    # The tolerance is one unit in the last place for each of 24 training steps, times 4 for
    # cancellation in sums.
    tolerance = 24 * 4 * float(np.finfo(dtype).eps)
    for key, value in problem.values.items():
        oracle = make_oracle(value)
        for number, gradients in enumerate(problem.gradients):
            oracle.apply(gradients[key], number)
            actual = trace.steps[number][key]
            np.testing.assert_allclose(actual, oracle.value, tolerance, tolerance)
        for slot, expected in oracle.slots.items():
            np.testing.assert_allclose(trace.slots[key, slot], expected, tolerance, tolerance)


@pytest.mark.in_turn(
    way=[way for way in running.WAYS if way != "session-resource"]
    + ["keras " + w for w in KERAS_WAYS],
    name=list(EXAMPLES),
    kind=["dense", "sparse", "duplicates"],
    dtype=["float32", "float64"],
)
def test_the_examples_have_the_same_bits_everywhere(name, kind, way, dtype):
    make, _ = EXAMPLES[name]
    problem = problems.make(kind, dtype)
    expected = running.session_resource(problem, make)
    if way.startswith("keras "):
        actual = final_slots_only(KERAS_WAYS[way[len("keras ") :]](problem, make))
    else:
        actual = running.WAYS[way](problem, make)
    running.assert_same(actual, expected, way)


@pytest.mark.parametrize("name", EXAMPLES)
def test_fit_with_an_embedding_equals_a_session(name):
    way, (make, _) = keras_ways.WAYS["fit"], EXAMPLES[name]
    model = way.task("float32")
    running.assert_same(way.run(model, make), way.reference(model, make), name)


@pytest.mark.parametrize("way", list(running.WAYS) + ["keras " + way for way in KERAS_WAYS])
def test_accumulated_sgd_updates_rows_missing_in_the_last_micro_batch(way):
    def rows(*ids):
        return problems.Rows(np.ones((len(ids), 1), np.float32), np.array(ids, np.int64))

    steps = [{"table": rows(0, 1)}, {"table": rows(1, 1)}, {"table": rows(2)}, {"table": rows(0)}]
    start = {"table": np.ones((4, 1), np.float32)}
    problem = problems.Problem(start, steps, ("table",), "float32")
    run = KERAS_WAYS[way[len("keras ") :]] if way.startswith("keras ") else running.WAYS[way]
    trace = run(problem, lambda _: rules.AccumulatedSGDOptimizer(0.5, 2))
    tables = [step["table"].ravel().tolist() for step in trace.steps]
    assert tables[0] == [1, 1, 1, 1]
    assert tables[1] == tables[2] == [0.75, 0.25, 1, 1]
    assert tables[3] == [0.5, 0.25, 0.75, 1]
    assert trace.slots["table", "total"].ravel().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("bridged", [False, True])
def test_four_micro_batches_equal_one_big_batch(bridged):
    random = np.random.RandomState(0)
    ids, targets = random.randint(0, 9, [32, 3]), random.randn(32)
    start = {"table": random.randn(9, 2), "kernel": random.randn(6)}

    def trained(optimizer, batch):
        variables = {name: tf.Variable(value) for name, value in start.items()}
        for at in list(range(0, 32, batch)) * 3:
            with tf.GradientTape() as tape:
                rows = tf.nn.embedding_lookup(variables["table"], ids[at : at + batch])
                output = tf.linalg.matvec(tf.reshape(rows, [batch, 6]), variables["kernel"])
                loss = tf.reduce_mean((output - targets[at : at + batch]) ** 2)
            gradients = tape.gradient(loss, list(variables.values()))
            optimizer.apply_gradients(zip(gradients, variables.values()))
        return {name: variable.numpy() for name, variable in variables.items()}

    accumulated = rules.AccumulatedSGDOptimizer(0.125, 4)
    if bridged:
        accumulated = to_keras(accumulated, api="optimizer_v2")
    small = trained(accumulated, 8)
    # Some TensorFlow versions round the learning rate to float32, but only for dense gradients. The
    # number 0.125 is exact in float32.
    big = trained(v1.train.GradientDescentOptimizer(0.125), 32)
    for name, value in big.items():
        assert np.abs(value - start[name]).max() > 0.01
        np.testing.assert_allclose(small[name], value, rtol=1e-12, atol=1e-14)


# A direct subclass of tf.compat.v1.train.Optimizer.


def heavy_ball():
    code = re.search(r"class HeavyBallOptimizer.*?(?=```)", PAGE.read_text("utf-8"), re.S).group()
    names = {"tf": tf}
    exec(code, names)
    return names["HeavyBallOptimizer"]


@pytest.mark.parametrize("way", keras_ways.WAYS)
def test_a_direct_subclass_of_optimizer_can_be_bridged(way):
    optimizer, way = heavy_ball(), keras_ways.WAYS[way]
    task = way.task("float32")
    actual = way.run(task, lambda _: optimizer(0.1))
    running.assert_same(actual, way.reference(task, lambda _: optimizer(0.1)))
    stock = way.reference(task, lambda _: v1.train.MomentumOptimizer(0.1, 0.9))
    running.assert_same(running.Trace(actual.steps, {}), running.Trace(stock.steps, {}))


def test_hyperparameters_that_prepare_reads_can_be_set():
    optimizer, w = to_keras(heavy_ball()(0.5), api="optimizer_v2"), tf.Variable([1.0])
    optimizer.momentum = 0.25
    for expected in [0.5, -0.125]:
        optimizer.apply_gradients([(tf.constant([1.0]), w)])
        assert w.numpy().tolist() == [expected]


# The page's statements about Keras 2.

WRONG_NAMES = ("resource_apply_dense", "resource_apply_sparse", "create_slots")


def recording_optimizer():
    """Returns an OptimizerV2, and the list in which it records the calls of its methods."""
    calls = []

    class Recording(versions.optimizer_v2()):
        def __init__(self):
            super().__init__("Recording")
            self._set_hyper("learning_rate", 0.5)

        def _create_slots(self, var_list):
            calls.append("_create_slots")
            for variable in var_list:
                self.add_slot(variable, "sum")

        def _prepare_local(self, var_device, var_dtype, apply_state):
            super()._prepare_local(var_device, var_dtype, apply_state)
            assert "lr_t" in apply_state[var_device, var_dtype]
            calls.append("_prepare_local " + var_dtype.name)

        def _resource_apply_dense(self, grad, var, apply_state=None):
            assert (var.device, var.dtype.base_dtype) in apply_state
            calls.append("_resource_apply_dense " + var.dtype.name)

        def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
            calls.append(f"_resource_apply_sparse {indices.numpy().tolist()}")

        def get_config(self):
            return super().get_config()

    for name in WRONG_NAMES:
        setattr(Recording, name, lambda self, *_, **__: calls.append("wrong name"))
    return Recording(), calls


def test_optimizer_v2_calls_the_names_with_underscore():
    optimizer, calls = recording_optimizer()
    ones = [tf.Variable(tf.ones([2, 1], dtype)) for dtype in ("float32", "float32", "float64")]
    rows = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([1, 1]), tf.constant([2, 1]))
    optimizer.apply_gradients(zip([rows, tf.ones([2, 1]), tf.ones([2, 1], tf.float64)], ones))
    assert calls[0] == "_create_slots"
    assert sorted(calls[1:3]) == ["_prepare_local float32", "_prepare_local float64"]
    assert calls[3:] == [
        "_resource_apply_sparse [1]",
        "_resource_apply_dense float32",
        "_resource_apply_dense float64",
    ]


def test_methods_without_underscore_do_not_make_an_optimizer():
    namespace = {name: lambda self, *_, **__: None for name in WRONG_NAMES}
    namespace.update(_create_slots=lambda self, var_list: None, get_config=lambda self: {})
    optimizer = type("Wrong", (versions.optimizer_v2(),), namespace)("Wrong")
    with pytest.raises(NotImplementedError):
        optimizer.apply_gradients([(tf.constant(1.0), tf.Variable(1.0))])


def test_which_versions_document_the_wrong_names():
    (base,) = [cls for cls in versions.optimizer_v2().__mro__ if cls.__name__ == "OptimizerV2"]
    text = inspect.getdoc(base)
    wrong = [bool(re.search(rf"- {name}\b", text)) for name in WRONG_NAMES]
    right = [bool(re.search(rf"- `_{name}`", text)) for name in WRONG_NAMES]
    if not hasattr(base, "_create_all_weights"):  # up to TensorFlow 2.1
        assert all(wrong)
    if hasattr(base, "_transform_gradients"):  # from TensorFlow 2.4 on
        assert all(right)
    assert [not name for name in wrong] == right


@pytest.mark.parametrize("bridged", [False, True])
def test_slots_are_created_in_the_first_step_or_on_request(bridged, tmp_path):
    def make():
        if bridged:
            return to_keras(rules.AdagradRule(0.1), api="optimizer_v2")
        return recording_optimizer()[0]

    slot = "accumulator" if bridged else "sum"
    w, optimizer = tf.Variable([1.0, 2.0]), make()
    assert list(optimizer.get_slot_names()) == []
    with pytest.raises(KeyError):
        optimizer.get_slot(w, slot)
    optimizer.apply_gradients([(tf.constant([1.0, 1.0]), w)])
    assert list(optimizer.get_slot_names()) == [slot]
    optimizer.get_slot(w, slot).assign([5.0, 6.0])

    if hasattr(optimizer, "_create_all_weights"):
        early = make()
        early._create_all_weights([w])
        assert list(early.get_slot_names()) == [slot]

    path = tf.train.Checkpoint(w=w, optimizer=optimizer).save(str(tmp_path / "state"))
    restored = make()
    tf.train.Checkpoint(w=w, optimizer=restored).restore(path)
    assert list(restored.get_slot_names()) == [slot]
    assert restored.get_slot(w, slot).numpy().tolist() == [5.0, 6.0]


def test_a_v1_optimizer_returns_none_before_a_slot_is_created():
    assert v1.train.AdagradOptimizer(0.1).get_slot(tf.Variable(1.0), "accumulator") is None


def test_the_page_names_existing_methods_of_keras():
    base, text = versions.optimizer_v2(), PAGE.read_text("utf-8")
    assert list(inspect.signature(base._resource_apply_dense).parameters)[-1] == "apply_state"
    for name in re.findall(r"\| `(_\w+)", text):
        assert hasattr(v1.train.Optimizer, name) or hasattr(base, name), name
    if versions.keras_facts()["generation"] == 3:
        ours = tf.keras.optimizers.Optimizer
        assert list(inspect.signature(ours.build).parameters) == ["self", "variables"]
        expected = ["self", "gradient", "variable", "learning_rate"]
        assert list(inspect.signature(ours.update_step).parameters) == expected
        assert not hasattr(ours, "get_slot") and not hasattr(ours, "_prepare")
