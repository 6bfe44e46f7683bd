"""Tests that records follow their hyperparameters, and refuse those that they cannot follow."""

import functools
import inspect
import math

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.native import NativeOptimizer
from legacy_opt.recorded.numpy import NumpyOptimizer
from tests.recorded.numpy_training import as_rows
from tests.support import problems, running
from tests.tools import rules

v1 = tf.compat.v1
CATALOGUE = sorted(set(rules.classes()) - set(rules.WITHOUT_RULE))
# Arguments whose hyperparameters have other names, or are functions of the argument.
ARGUMENTS = {"l1": "l1_regularization_strength", "l2": "l2_regularization_strength"}
ONES = np.ones(3, np.float32)


def others(record):
    """Returns other values of all hyperparameters, of few binary digits."""
    values = [0.5, 0.625, 0.375, 0.75, 0.875]
    found = {name: values[i % 5] for i, name in enumerate(sorted(record.hyperparameters))}
    if "learning_rate_power" in found:
        found["learning_rate_power"] = -0.625
    if record.optimizer == "COCOBOptimizer":
        found["alpha"] = 1.5  # at least 1
    return found


def arguments_of(cls, hyperparameters):
    """Returns the arguments of a constructor for values of hyperparameters."""
    found = {ARGUMENTS.get(name, name): value for name, value in hyperparameters.items()}
    if "logbase" in found:
        found["base"] = math.exp(found.pop("logbase"))
    if "sign_decay" in found:
        value = found.pop("sign_decay")
        found["sign_decay_fn"] = lambda step: tf.constant(value)
    return found


def made(cls, **arguments):
    """Returns an optimizer with some arguments, and the other arguments of the catalogue."""
    with_defaults = dict(rules.ARGUMENTS, global_step=v1.train.get_or_create_global_step())
    for each in inspect.signature(cls.__init__).parameters.values():
        is_needed = each.default is each.empty or each.name == "global_step"
        if is_needed and each.name in with_defaults:
            arguments.setdefault(each.name, with_defaults[each.name])
    return cls(**arguments)


def stepped(record, gradients=(ONES, -2 * ONES, ONES), optimizer=NumpyOptimizer, **values):
    """Returns a variable after some steps."""
    weights = {"w": np.array([1.0, -2.0, 0.5], record.dtype)}
    its = optimizer(record, weights, **values)
    for each in gradients:
        its.step({"w": each.astype(record.dtype)})
    return weights["w"]


def in_a_session(make, gradients=(ONES, -2 * ONES, ONES), dtype="float32"):
    """Returns the same variable after the same steps of a v1 optimizer with kernels."""
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=np.array([1.0, -2.0, 0.5], dtype), use_resource=True)
        step = v1.train.get_or_create_global_step()
        fed = v1.placeholder(dtype, [3])
        optimizer = legacy_opt.native.accelerate(make(), require=True)
        train = optimizer.apply_gradients([(fed, w)], step)
        feeds = [{fed: each.astype(dtype)} for each in gradients]
        return running.after(train, w, feeds=feeds)


@pytest.mark.one_lane
@pytest.mark.parametrize("name", CATALOGUE)
def test_each_record_of_the_catalogue_follows_all_that_it_lists(name):
    record, cls = recorded.load(name), rules.classes()[name]
    values = others(record)
    names = [
        each
        for each, array in problems.everything().values.items()
        if not isinstance(
            getattr(
                record.group_of(each, array.shape),
                "sparse" if each in ("table", "bias", "cube") else "dense",
            ),
            str,
        )
    ]
    problem = problems.everything("float32", tuple(names), steps=4)

    def make(step):
        optimizer = made(cls, **arguments_of(cls, values))
        optimizer.global_step_is_advanced = True
        return legacy_opt.native.accelerate(optimizer, require=True)

    expected = running.session(problem, make, use_resource=True).steps
    for optimizer_class in NumpyOptimizer, NativeOptimizer:
        weights = {each: array.copy() for each, array in problem.values.items()}
        optimizer = optimizer_class(record, weights, **values)
        for gradients, after in zip(problem.gradients, expected):
            optimizer.step(as_rows(gradients))
            for each, array in weights.items():
                np.testing.assert_array_equal(array, after[each], each)


@pytest.mark.one_lane
@pytest.mark.parametrize("name", ["AdamWeightDecayOptimizer", "LAMBOptimizer"])
@pytest.mark.parametrize("rate", [0.0, 0.01, 0.5])
def test_the_weight_decay_of_bert(name, rate):
    make = getattr(legacy_opt, name)
    expected = in_a_session(lambda: make(0.01, weight_decay_rate=rate))
    for optimizer in NumpyOptimizer, NativeOptimizer:
        found = stepped(recorded.load(name), optimizer=optimizer, weight_decay_rate=rate)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["AdamWeightDecayOptimizer", "LAMBOptimizer"])
def test_variables_that_bert_excludes_from_weight_decay(name):
    make = getattr(legacy_opt, name)
    excluding = recorded.record(make(0.01, exclude_from_weight_decay=["bias"]), {"bias": [3]})
    with pytest.raises(recorded.RecordError, match="weight_decay_rate was 0.0 when"):
        NumpyOptimizer(excluding, {"bias": ONES.copy()}, weight_decay_rate=0.5)


@pytest.mark.parametrize(
    "name, values",
    [
        ("AdamOptimizer", {"beta1": 0.5, "beta2": 0.75}),
        ("NadamOptimizer", {"beta1": 0.5, "beta2": 0.5}),
        ("AdamAsyncOptimizer", {"beta1": 0.3, "beta2": 0.6}),
        ("AdagradDecayOptimizer", {"initial_accumulator_value": 0.3}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_initial_values_are_those_of_the_hyperparameters(name, values, dtype):
    cls = rules.classes()[name]
    expected = in_a_session(lambda: made(cls, **values), dtype=dtype)
    with tf.Graph().as_default():
        record = recorded.record(made(cls), dtype=dtype)
    assert recorded.loads(recorded.dumps(record)) == record
    np.testing.assert_array_equal(stepped(record, **values), expected)


def test_a_function_whose_value_is_an_initial_value():
    record = recorded.record(legacy_opt.LazyAdamOptimizer(0.01, beta1=lambda: 0.8))
    expected = in_a_session(lambda: legacy_opt.LazyAdamOptimizer(0.01, beta1=0.5))
    np.testing.assert_array_equal(stepped(record, beta1=0.5), expected)


class Own(legacy_opt.RuleOptimizer):
    slots = {"sums": legacy_opt.Slot()}
    needed = ("rate", "other")

    def __init__(self, rate=0.5, other=0.25, name="Own"):
        super().__init__(False, name, rate=rate, other=other)

    def rule(self, grad, value, slots, hyper):
        return hyper.rate * grad, {}


class Branch(Own):
    def rule(self, grad, value, slots, hyper):
        if self._other > 0:
            return hyper.rate * grad + hyper.other * value, {}
        return hyper.rate * grad, {}


class Attribute(Own):
    def rule(self, grad, value, slots, hyper):
        return hyper.rate * grad + self._other * value, {}


class Unused(Own):
    pass


class BranchOfSlots(Own):
    def slot_layouts(self, variable):
        return {"sums": legacy_opt.Slot()} if self._other else {}

    def rule(self, grad, value, slots, hyper):
        if not self._other:
            return hyper.rate * grad, {}
        sums = hyper.other * slots.sums + grad
        return hyper.rate * sums, {"sums": sums}


class Computed(Own):
    """Its slot starts at a value that Python computes."""

    def slot_layouts(self, variable):
        return {"sums": legacy_opt.Slot(1 - self._other)}

    def rule(self, grad, value, slots, hyper):
        return hyper.rate * grad + slots.sums * hyper.other, {}


class OnceInPython(Own):
    def once_per_step(self, hyper):
        return {"scaled": hyper.rate / (2 * self._other)}

    def rule(self, grad, value, slots, hyper):
        return hyper.scaled * grad * hyper.other, {}


class PerVariable(Own):
    def hyperparameters(self, dtype, non_slots=True):
        hyper = super().hyperparameters(dtype, non_slots)
        hyper.rate = hyper.rate * float(np.sqrt(1 - self._other))
        return hyper


@pytest.mark.parametrize("cls", [Attribute, Unused, Computed, OnceInPython, PerVariable])
def test_a_value_that_decides_in_python_is_refused_by_name(cls):
    record = recorded.loads(recorded.dumps(recorded.record(cls(), {"w": [3]})))
    assert list(record.hyperparameters) == ["rate"] and list(record.fixed) == ["other"]
    for rate in 0.5, 0.75:
        expected = in_a_session(functools.partial(cls, rate=rate))
        np.testing.assert_array_equal(stepped(record, rate=rate, other=0.25), expected)
    for wrong in 0.0, 0.5, lambda step: 0.25:
        with pytest.raises(recorded.RecordError, match="other was 0.25 when .* was recorded, and"):
            stepped(record, other=wrong)
    optimizer = NumpyOptimizer(record, {"w": ONES.copy()})
    optimizer.hyperparameters["other"] = 0.5
    with pytest.raises(recorded.RecordError, match="other was 0.25 when"):
        optimizer.step({"w": ONES})


@pytest.mark.parametrize("cls", [Branch, BranchOfSlots])
def test_a_value_of_zero_that_decides_is_refused_by_name(cls):
    record = recorded.record(cls(other=0.0), {"w": [3]})
    np.testing.assert_array_equal(stepped(record), in_a_session(lambda: cls(other=0.0)))
    with pytest.raises(recorded.RecordError, match=r"optimizer with other=0.25 \(legacy_opt.rec"):
        stepped(record, other=0.25)
    record = recorded.record(cls(other=0.25), {"w": [3]})
    record = recorded.loads(recorded.dumps(record))
    expected = in_a_session(lambda: cls(other=0.5))
    np.testing.assert_array_equal(stepped(record, other=0.5), expected)
    with pytest.raises(
        recorded.RecordError,
        match="other was 0.25 when .* not follow it to 0 or another sign: make another",
    ):
        stepped(record, other=0.0)
    with pytest.raises(recorded.RecordError, match="other must be a number"):
        stepped(record, other=lambda step: 0.5)


class Scaled(v1.train.GradientDescentOptimizer):
    def _prepare(self):
        self._learning_rate_tensor = tf.convert_to_tensor(0.5 * self._learning_rate)


def test_what_prepare_computes_in_python():
    record = recorded.record(Scaled(0.5))
    np.testing.assert_array_equal(stepped(record), in_a_session(lambda: Scaled(0.5)))
    with pytest.raises(recorded.RecordError, match="learning_rate was 0.25 when Scaled was rec"):
        stepped(record, learning_rate=0.5)


@pytest.mark.every_lane
@pytest.mark.skipif(
    "beta" not in inspect.signature(v1.train.FtrlOptimizer).parameters,
    reason="this TensorFlow's Ftrl has no beta",
)
def test_the_beta_of_ftrl():
    make = lambda rate=0.5: v1.train.FtrlOptimizer(rate, beta=1.0)  # noqa: E731
    record = recorded.record(make())
    np.testing.assert_array_equal(stepped(record), in_a_session(make))
    for name in "learning_rate", "l2":
        with pytest.raises(recorded.RecordError, match=f"{name} was .* when Ftrl.* does not foll"):
            stepped(record, **{name: 0.125})
    np.testing.assert_array_equal(
        stepped(record, l1=0.5),
        in_a_session(lambda: v1.train.FtrlOptimizer(0.5, beta=1.0, l1_regularization_strength=0.5)),
    )
    with tf.Graph().as_default(), pytest.raises(recorded.RecordError, match="pass a number"):
        recorded.record(make(tf.constant(0.5)))


@pytest.mark.parametrize("name, value", [("beta1", 0.5), ("l2_shrinkage", 0.5)])
def test_the_catalogue_names_what_it_cannot_follow(name, value):
    record = recorded.load("AdafactorOptimizer" if name == "beta1" else "FtrlOptimizer")
    assert name in record.fixed and name not in record.hyperparameters
    assert np.array_equal(stepped(record), stepped(record, **{name: 0.0}))
    with pytest.raises(recorded.RecordError, match=f"{name} was 0.0 when"):
        stepped(record, **{name: value})
    recorded_with = recorded.record(legacy_opt.AdafactorOptimizer(beta1=0.5))
    expected = in_a_session(lambda: legacy_opt.AdafactorOptimizer(beta1=0.25))
    np.testing.assert_array_equal(stepped(recorded_with, beta1=0.25), expected)


@pytest.mark.parametrize("value", ["0.1", None, [0.1, 0.2], lambda step: 0.1])
def test_values_that_are_no_numbers(value):
    with pytest.raises(recorded.RecordError, match="^epsilon (must be a|was no) number"):
        stepped(recorded.load("AdamOptimizer"), epsilon=value)


def test_states_of_other_hyperparameters(tmp_path):
    record = recorded.record(v1.train.AdamOptimizer(0.01, beta1=0.5))
    first = NumpyOptimizer(record, {"w": ONES.copy()})
    first.step({"w": ONES})
    state_files.write(tmp_path / "state.npz", state_files.state_of(first))
    state = state_files.read(tmp_path / "state.npz")
    second = NumpyOptimizer(recorded.load("AdamOptimizer"), {"w": ONES.copy()})
    state_files.load_into(second, state)
    assert second.state.shared == first.state.shared


class Derived(legacy_opt.RuleOptimizer):
    """Computes something from beta in its constructor, which `by` says."""

    slots = {"m": legacy_opt.Slot()}

    def __init__(self, learning_rate=0.1, beta=0.9, by="number", name="Derived"):
        super().__init__(False, name, learning_rate=learning_rate, beta=beta)
        self._by, self._one_minus, self._is_used = by, 1 - beta, beta > 0
        self._function = lambda grad: beta * grad

    def rule(self, grad, value, slots, hyper):
        change = {
            "number": lambda: hyper.beta * slots.m + self._one_minus * grad,
            "flag": lambda: hyper.beta * slots.m + grad if self._is_used else grad,
            "function": lambda: slots.m + self._function(grad),
            "large": lambda: hyper.beta * slots.m + (grad if self._beta > 0.95 else 0.0 * grad),
            "equal": lambda: grad if self._beta == 1 else hyper.beta * slots.m + grad,
        }[self._by]()
        return hyper.learning_rate * change, {"m": change}


@pytest.mark.parametrize(
    "by, beta", [("number", 0.5), ("flag", 0.0), ("function", 0.3), ("large", 0.99), ("equal", 1.0)]
)
def test_what_a_constructor_computes_is_refused_by_name(by, beta):
    record = recorded.record(Derived(by=by))
    with pytest.raises(recorded.RecordError, match="beta was 0.8999"):
        stepped(record, beta=beta)
    expected = in_a_session(lambda: Derived(by=by))
    np.testing.assert_allclose(stepped(record), expected, rtol=1e-6)


def test_another_sign_is_another_rule():
    class Positive(Derived):
        def rule(self, grad, value, slots, hyper):
            change = hyper.beta * slots.m + grad if self._beta > 0 else grad
            return hyper.learning_rate * change, {"m": change}

    record = recorded.record(Positive())
    assert record.nonzero == ("beta",)
    for beta in (0.0, -0.9):
        with pytest.raises(recorded.RecordError, match="to 0 or another sign"):
            stepped(record, beta=beta)


def test_a_value_that_decides_by_its_sign_and_is_not_read():
    class Turned(Own):
        def rule(self, grad, value, slots, hyper):
            return hyper.rate * (grad if self._other > 0 else -grad), {}

    record = recorded.record(Turned())
    assert recorded.loads(recorded.dumps(record)) == record
    assert list(record.fixed) == ["other"] and not record.nonzero


def test_an_initial_value_that_is_equal_by_chance_follows_nothing():
    class Chance(Derived):
        def non_slots(self):
            return {"p": 1 - self._learning_rate}

        def rule(self, grad, value, slots, hyper):
            return hyper.learning_rate * hyper.p * grad, {}

    assert recorded.record(Chance(1.0)).initial == {}
