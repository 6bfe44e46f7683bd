"""Tests trainings with recorded rules in Keras 3 on PyTorch or JAX."""

import keras
import numpy as np
import pytest

from legacy_opt import recorded
from legacy_opt.recorded import keras_state, native
from legacy_opt.recorded.keras import RecordedOptimizer
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from tests.recorded import references
from tests.recorded.references import EVERY_RULE, LAZY_ADAM, refused, through_a_file

RANDOM = np.random.RandomState(0)
X, Y = RANDOM.randint(0, 30, (64, 2)), RANDOM.randn(64, 1).astype("f4")
GRADIENTS = [RANDOM.randn(3, 2).astype("f4") for _ in range(8)]


def build(**kwargs):
    """Returns a compiled model with an embedding."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Embedding(30, 4, name="table"), keras.layers.Flatten()]
    model = keras.Sequential(
        [keras.Input((2,)), *layers, keras.layers.Dense(1, name="dense")], name="model"
    )
    model.compile(RecordedOptimizer(LAZY_ADAM, **{"learning_rate": 0.01, **kwargs}), "mse")
    return model


def fit(model, epochs=2):
    """Trains a model with batches in their order."""
    return model.fit(X, Y, 8, epochs, verbose=0, shuffle=False).history["loss"]


def same(model, other):
    """Returns whether two models, and their optimizers, have the same values."""
    values = [[*each.variables, *each.optimizer.variables] for each in (model, other)]
    one, two = ([keras.ops.convert_to_numpy(each) for each in its] for its in values)
    return len(one) == len(two) and all(map(np.array_equal, one, two))


def test_a_training_goes_on_from_a_file_of_keras_and_from_its_weights(tmp_path):
    whole, model = build(), build()
    losses = fit(whole, 4)
    assert losses[-1] < losses[0]
    fit(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    other = build()
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "model.weights.h5")
    assert loaded.optimizer.record == model.optimizer.record
    for each in (model, loaded, other):
        fit(each)
        assert same(each, whole)


def test_a_training_goes_on_from_a_state_file_in_keras_and_numpy(tmp_path):
    model, other = build(), build()
    fit(model)
    names = {"w": model.layers[-1].kernel}
    state = through_a_file(tmp_path, keras_state.state_of(model.optimizer, names))
    assert state.global_step == 16
    assert set(state.slots) == {"w", "model/dense/bias", "model/table/embeddings"}
    refused("has no state", keras_state.load_state, other.optimizer, state)
    other.optimizer.build(other.trainable_variables)
    refused("no variable 'model/dense/kernel'", keras_state.load_state, other.optimizer, state)
    keras_state.load_state(other.optimizer, state, {"w": other.layers[-1].kernel})
    fit(model), fit(other)
    assert same(model, other)
    optimizer, weights = references.in_numpy(state, learning_rate=0.01)
    keras_state.load_state(model.optimizer, state, names)
    gradients = {name: RANDOM.randn(*each.shape).astype("f4") for name, each in weights.items()}
    optimizer.step(gradients)
    variables = model.trainable_variables
    own = {id(each): name for name, each in names.items()}
    grads = [gradients[own.get(id(each), each.path)] for each in variables]
    model.optimizer.apply([keras.ops.convert_to_tensor(each) for each in grads], variables)
    found = keras_state.state_of(model.optimizer, names).variables
    assert all(np.array_equal(found[name], each) for name, each in weights.items())


def trained(name="MomentumOptimizer", gradients=GRADIENTS, **kwargs):
    """Returns a variable after some steps."""
    variable = keras.Variable(np.ones((3, 2), "f4"), name="w")
    optimizer = RecordedOptimizer(recorded.load(name), **kwargs)
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
    return variable, optimizer


def in_numpy(gradients, name="MomentumOptimizer", rates=(0.1,)):
    """Returns the weight after the same steps in NumPy."""
    weights = {"w": np.ones((3, 2), "f4")}
    optimizer = NumpyOptimizer(recorded.load(name), weights)
    for i, gradient in enumerate(gradients):
        optimizer.hyperparameters["learning_rate"] = rates[min(i, len(rates) - 1)]
        optimizer.step({"w": gradient})
    return weights["w"]


def equal(variable, array):
    """Returns whether a variable of Keras has the bits of an array."""
    return np.array_equal(keras.ops.convert_to_numpy(variable), array)


def test_schedules():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([2, 4], [0.5, 0.25, 0.125])
    variable, optimizer = trained(learning_rate=schedule)
    assert equal(variable, in_numpy(GRADIENTS, rates=[0.5] * 3 + [0.25] * 2 + [0.125]))
    copy = RecordedOptimizer.from_config(optimizer.get_config())
    assert copy.get_config() == optimizer.get_config() and copy.record == optimizer.record


def test_a_learning_rate_that_is_set():
    variable, optimizer = trained(learning_rate=0.1)
    optimizer.learning_rate = 0.5
    assert equal(variable, in_numpy(GRADIENTS))
    optimizer.apply([keras.ops.convert_to_tensor(GRADIENTS[0])], [variable])
    assert equal(variable, in_numpy([*GRADIENTS, GRADIENTS[0]], rates=[0.1] * 8 + [0.5]))


def test_clipping_of_keras():
    variable, _ = trained(learning_rate=0.1, clipvalue=0.5)
    assert equal(variable, in_numpy([np.clip(each, -0.5, 0.5) for each in GRADIENTS]))
    clipped = [each / max(1, np.linalg.norm(each)) for each in GRADIENTS]
    for kind in ("clipnorm", "global_clipnorm"):
        variable, _ = trained(learning_rate=0.1, **{kind: 1.0})
        found = keras.ops.convert_to_numpy(variable)
        assert np.allclose(found, in_numpy(np.float32(clipped)), atol=1e-6), kind


def test_accumulation_and_averages_of_keras():
    variable, optimizer = trained(learning_rate=0.1, gradient_accumulation_steps=2)
    pairs = [(a + b) / np.float32(2) for a, b in zip(GRADIENTS[::2], GRADIENTS[1::2])]
    assert equal(variable, in_numpy(pairs)) and int(optimizer.iterations) == 4

    variable, optimizer = trained(learning_rate=0.1, use_ema=True, ema_momentum=0.0)
    optimizer.finalize_variable_values([variable])
    assert equal(variable, in_numpy(GRADIENTS))


@EVERY_RULE
def test_other_values_of_hyperparameters(name):
    """Records follow other values, also after loading; where they cannot, these are refused."""
    record, hyper, gradients, expected = references.with_other_hyperparameters(name)
    rate = {"learning_rate": hyper.pop("learning_rate")} if "learning_rate" in hyper else {}
    optimizer = RecordedOptimizer(record, **rate, hyperparameters=hyper)
    optimizer = RecordedOptimizer.from_config(optimizer.get_config())
    variable = keras.Variable(np.ones((4, 3), "f4"), name="w")
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
    assert equal(variable, expected)
    for name in record.fixed:
        given = {name: 0.5}
        refused(f"{name} was 0.0 when", RecordedOptimizer, record, hyperparameters=given)
        RecordedOptimizer(record, hyperparameters={name: 0.0})


def test_learning_rates_that_are_refused():
    record = recorded.load("MomentumOptimizer")._replace(nonzero=("learning_rate",))
    optimizer = RecordedOptimizer(record, 0.1)
    for wrong in 0.0, -0.5, np.float32(0.0), lambda: 0.1:
        refused("learning_rate ", setattr, optimizer, "learning_rate", wrong)
    optimizer.learning_rate = 0.5
    assert float(optimizer.learning_rate) == 0.5
    record = recorded.load("AdafactorOptimizer")
    refused("no hyperparameter 'learning_rate'", RecordedOptimizer, record, 0.1)
    with pytest.raises(AttributeError, match="does not follow a learning rate"):
        RecordedOptimizer(record).learning_rate = 0.1
    record = recorded.load("AdamWOptimizer")
    refused("weight_decay is Keras' own", RecordedOptimizer, record, weight_decay=0.1)


def test_clipping_of_records():
    record = recorded.load("MomentumOptimizer")
    limit = recorded.records.Scalar("float32", 0.5)
    record = record._replace(
        clipping="rows", hyperparameters=dict(record.hyperparameters, clip_norm=limit)
    )
    weights = {name: np.ones((3, 2), "f4") for name in "ba"}
    numpy_optimizer, optimizer = NumpyOptimizer(record, weights), RecordedOptimizer(record)
    variables = [keras.Variable(np.ones((3, 2), "f4"), name=name) for name in "ba"]
    for one, other in zip(GRADIENTS, GRADIENTS[1:]):
        numpy_optimizer.step({"b": one, "a": other})
        optimizer.apply([keras.ops.convert_to_tensor(each) for each in (one, other)], variables)
    assert all(equal(each, weights[each.name]) for each in variables)


def test_rows_of_tables_whose_gradient_is_zero_are_not_updated():
    gradients = [each * [[1], [step % 2], [0]] for step, each in enumerate(GRADIENTS)]
    gradients = [each.astype("f4") for each in gradients]
    name, weights = "LazyAdamOptimizer", {"w": np.ones((3, 2), "f4")}
    variable, _ = trained(name, gradients=gradients, tables=["w"], learning_rate=0.1)
    optimizer = NumpyOptimizer(recorded.load(name), weights, learning_rate=0.1)
    for each in gradients:
        ids = np.flatnonzero(each.any(1))
        optimizer.step({"w": Rows(ids, each[ids])})
    assert equal(variable, weights["w"])
    variable, _ = trained(name, gradients=gradients, learning_rate=0.1)
    assert not equal(variable, weights["w"])
    model = build(tables=["model/table/embeddings"])
    before = model.get_weights()[0]
    fit(model)
    changed = np.any(model.get_weights()[0] != before, axis=1)
    assert np.array_equal(np.flatnonzero(changed), np.unique(X))


def test_arguments(monkeypatch):
    given = {"rate": 0.1}
    refused("no hyperparameter 'rate'", RecordedOptimizer, LAZY_ADAM, hyperparameters=given)
    refused("'exakt'", RecordedOptimizer, LAZY_ADAM, level="exakt")
    half = keras.Variable(np.ones(2, "f2"), dtype="float16", name="half")
    refused("'half' has the dtype float16", RecordedOptimizer(LAZY_ADAM).build, [half])
    pair = [keras.Variable(np.ones(2, "f4"), name="w") for _ in range(2)]
    refused("two variables have the path 'w'", RecordedOptimizer(LAZY_ADAM).build, pair)
    refused("tables has 'x'", RecordedOptimizer(LAZY_ADAM, tables=["x"]).build, pair[:1])
    refused("Argument(s) not recognized", RecordedOptimizer, LAZY_ADAM, learning_rat=0.1)
    monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
    refused("use legacy_opt.compat.to_keras", RecordedOptimizer, LAZY_ADAM)


def test_variables_in_a_state():
    optimizer = RecordedOptimizer(LAZY_ADAM)
    two = [keras.Variable(np.ones(2, "f4"), name=name) for name in "ab"]
    optimizer.build(two)
    mean = keras.Variable(np.full(2, 7, "f4"), name="mean", trainable=False)
    state = keras_state.state_of(optimizer, {"moving_mean": mean})
    assert set(state.slots) == {"a", "b"}
    mean.assign(np.zeros(2, "f4"))
    keras_state.load_state(optimizer, state, {"moving_mean": mean})
    assert np.array_equal(keras.ops.convert_to_numpy(mean), [7, 7])
    refused("no variable 'average'", keras_state.load_state, optimizer, state, {"average": mean})
    refused("two parameters have the name 'b'", keras_state.state_of, optimizer, {"b": two[0]})


def test_levels(monkeypatch):
    """Kernels are chosen and, in PyTorch, compiled for the first step only."""
    found = []
    for level in "auto", "exact", "fast":
        model = build(level=level)
        assert model.optimizer.get_config()["level"] == level
        fit(model, 1)
        found.append(model)
    assert [each.optimizer.level for each in found] == ["native", "exact", "fast"]
    assert same(*found[:2])
    if keras.backend.backend() == "torch":
        monkeypatch.setattr(native, "_compiled", None)  # it would raise an error
        fit(found[0], 1)
        refused("one of auto, exact, fast, native", RecordedOptimizer, LAZY_ADAM, level="exakt")


def test_native_level_with_tables():
    exact, in_place = (
        build(level=level, tables=["model/table/embeddings"]) for level in ("exact", "native")
    )
    for each in exact, in_place:
        fit(each)
    assert same(exact, in_place)
    assert in_place.optimizer.get_config()["level"] == "native"
