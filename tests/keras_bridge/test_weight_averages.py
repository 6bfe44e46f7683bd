"""Tests `EvaluateAverages` and `averages`: evaluating with averages, and going on with the weights.

All models start at the weight 8 and have the gradient 1 in each step, so that SGD with the rate 0.5
gives 7.5, 7, 6.5, …, and the averages are computed by hand.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import LookaheadOptimizer, MovingAverageOptimizer, SWAOptimizer
from legacy_opt.compat import EvaluateAverages, averages
from tests.support.keras.keras_apis import KERAS_3
from tests.support.keras.loading import load_model

v1 = tf.compat.v1
X, Y = np.ones([4, 1], "f"), np.zeros([4, 1], "f")
MAKERS = {  # the averages after 0, 1, … steps
    "moving average": (lambda inner: MovingAverageOptimizer(inner, 0.5), [8, 7.75, 7.375, 6.9375]),
    "snapshots": (lambda inner: SWAOptimizer(inner, average_period=1), [8, 7.5, 7.25, 7.0]),
    "before the first snapshot": (lambda inner: SWAOptimizer(inner, 10), [8, 7.5, 7.0, 6.5]),
    "nested": (
        lambda inner: LookaheadOptimizer(SWAOptimizer(inner, average_period=1)),
        [8, 7.5, 7.25, 7.0],
    ),
}
AVERAGES = MAKERS["snapshots"][1]


def made(api, name="snapshots"):
    """Returns a compiled model whose output is its weight; an epoch of four rows is one step."""
    keras = api.keras
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=keras.initializers.Constant(8))
    model = keras.Sequential([keras.layers.Input([1]), layer])
    inner = v1.train.GradientDescentOptimizer(0.5)
    model.compile(api.bridged(MAKERS[name][0](inner)), mean_output)
    return model


def mean_output(targets, outputs):
    return tf.reduce_mean(outputs - targets, axis=-1)


def weight(model):
    (kernel,) = model.get_weights()
    return float(kernel[0, 0])


def fit(model, callbacks, epochs=1, **arguments):
    arguments.setdefault("validation_data", (X, Y))
    return model.fit(
        X, Y, batch_size=4, epochs=epochs, callbacks=callbacks, verbose=0, **arguments
    ).history


def at(api, kind, call):
    """Returns a callback whose method `kind` calls a function with the model."""

    def method(self, *_, **__):
        call(self.model)

    return type("At", (api.keras.callbacks.Callback,), {kind: method})()


class Interrupted(Exception):
    pass


def raises(error):
    def call(model):
        raise error

    return call


@pytest.mark.parametrize("name", MAKERS)
def test_fit_validates_with_averages_and_trains_on_with_the_weights(api, name):
    model, expected = made(api, name), MAKERS[name][1]
    history = fit(model, [EvaluateAverages()], epochs=3)
    assert history["val_loss"] == expected[1:]
    assert history["loss"] == [8, 7.5, 7.0]  # before each step
    assert weight(model) == 6.5
    slot = {"moving average": "moving_average"}.get(name, "average")
    assert model.optimizer.get_slot(model.trainable_variables[0], slot).numpy() == expected[3]


def test_evaluate_and_the_scope(api):
    model = made(api)
    fit(model, [], epochs=3)
    assert model.evaluate(X, Y, verbose=0) == 6.5
    assert model.evaluate(X, Y, verbose=0, callbacks=[EvaluateAverages()]) == AVERAGES[3]
    with averages(model):
        assert model.evaluate(X, Y, verbose=0) == model.predict(X, verbose=0)[0] == AVERAGES[3]
        slot = model.optimizer.get_slot(model.trainable_variables[0], "average")
        assert slot.numpy() == 6.5
    assert weight(model) == 6.5


@pytest.mark.parametrize("error", [Interrupted, KeyboardInterrupt])
@pytest.mark.parametrize("same", [True, False])
def test_training_goes_on_with_the_weights_after_an_interrupted_evaluation(api, error, same):
    model, ours = made(api), EvaluateAverages()
    with pytest.raises(error):
        fit(model, [ours, at(api, "on_test_batch_end", raises(error))])
    assert weight(model) == AVERAGES[1]  # by chance the weight; it differs from now on
    with pytest.raises(error):
        fit(model, [ours, at(api, "on_test_end", raises(error))][::-1])
    # TensorFlow 1.15 calls on_test_end after errors, too.
    assert weight(model) == (7.0 if hasattr(tf, "contrib") else AVERAGES[2])
    history = fit(model, [ours if same else EvaluateAverages()])
    assert history["loss"] == [7.0] and history["val_loss"] == [AVERAGES[3]]
    assert weight(model) == 6.5


@pytest.mark.parametrize("failing", range(5))
def test_an_exchange_that_fails_in_the_middle_loses_nothing(api, failing, monkeypatch):
    """The program is interrupted in one of the four assignments, or (last case) in none."""
    model = made(api)
    fit(model, [], epochs=3)
    real, calls = EvaluateAverages.on_test_begin.__globals__["versions"].assign_to, []

    def assign(variable, value):
        calls.append(variable)
        if len(calls) == failing + 1:
            raise KeyboardInterrupt
        real(variable, value)

    versions = EvaluateAverages.on_test_begin.__globals__["versions"]
    with monkeypatch.context() as patched:
        patched.setattr(versions, "assign_to", assign)
        try:
            model.evaluate(X, Y, verbose=0, callbacks=[EvaluateAverages()])
        except KeyboardInterrupt:
            assert failing < 4
    with averages(model):
        assert weight(model) == AVERAGES[3]
    assert weight(model) == 6.5
    slot = model.optimizer.get_slot(model.trainable_variables[0], "average")
    assert slot.numpy() == AVERAGES[3]


def test_an_error_in_the_scope(api):
    model = made(api)
    fit(model, [], epochs=2)
    with pytest.raises(Interrupted), averages(model):
        raise Interrupted
    assert weight(model) == 7.0


def test_weights_that_were_assigned_in_the_meantime_stay(api):
    model = made(api)
    fit(model, [], epochs=2)
    with averages(model):
        model.set_weights([np.float32([[3.0]])])
    assert weight(model) == 3.0
    slot = model.optimizer.get_slot(model.trainable_variables[0], "average")
    assert slot.numpy() == AVERAGES[2]


def test_the_order_of_callbacks_decides_what_they_save(api, tmp_path):
    model = made(api)
    seen = {"before": [], "after": [], "next": []}
    look = {key: lambda model, key=key: seen[key].append(weight(model)) for key in seen}
    path = str(tmp_path / "at.{epoch}.weights.h5")
    saves = api.keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    ours = EvaluateAverages(save_averages=True)
    before, after = at(api, "on_epoch_end", look["before"]), at(api, "on_epoch_end", look["after"])
    callbacks = [before, ours, saves, after, at(api, "on_epoch_begin", look["next"])]
    fit(model, callbacks, epochs=3)
    assert seen == {"before": [7.5, 7.0, 6.5], "after": AVERAGES[1:], "next": [8, 7.5, 7.0]}
    assert weight(model) == 6.5
    other = made(api)
    fit(other, [])  # Keras 3 saves the state of the optimizer, too, and loads it after a step only
    for number in 1, 2, 3:
        other.load_weights(path.format(epoch=number))
        assert weight(other) == AVERAGES[number]


def test_a_callback_that_restores_weights_at_the_end_is_not_undone(api):
    model = made(api)
    stops = api.keras.callbacks.EarlyStopping(
        "val_loss", patience=0, mode="max", restore_best_weights=True
    )
    fit(model, [EvaluateAverages(save_averages=True), stops], epochs=5)
    assert weight(model) == AVERAGES[1]  # the best, and not the trained weight after two epochs


def test_other_optimizers_raise_an_error(api):
    model = made(api)
    model.compile(api.bridged(v1.train.GradientDescentOptimizer(0.5)), mean_output)
    message = "has no averages. Compile the model with to_keras.MovingAverage"
    with pytest.raises(TypeError, match=message):
        fit(model, [EvaluateAverages()])
    with pytest.raises(TypeError, match=message), averages(model):
        pass


@pytest.mark.keras3
def test_a_model_that_the_first_step_builds_raises_an_error():
    """Its weights get their values when the first step runs, after the averages are created."""
    model = KERAS_3.keras.Sequential([KERAS_3.keras.layers.Dense(1)])
    model.compile(made(KERAS_3).optimizer, "mse")
    with pytest.raises(ValueError, match="has none yet.*keras.Input"):
        fit(model, [])


@pytest.mark.parametrize("name", ["snapshots", "nested"])
def test_a_saved_model_goes_on(api, name, tmp_path):
    keras, file = api.keras, "model.keras" if api is KERAS_3 else "model.h5"
    model = made(api, name)
    model.compile(model.optimizer, "mse")
    fit(model, [], epochs=2)
    model.save(str(tmp_path / file))
    again = load_model(api, tmp_path / file)
    assert again.optimizer.get_config() == model.optimizer.get_config()
    for _ in range(5):
        for each in model, again:
            fit(each, [EvaluateAverages()])
        np.testing.assert_array_equal(again.get_weights(), model.get_weights())
    assert keras.models.Sequential is type(again)
    states = [[each.numpy() for each in one.optimizer.weights] for one in (model, again)]
    for one, other in zip(*states):
        np.testing.assert_array_equal(one, other)


def test_a_scope_goes_on_after_nested_ones(api):
    model = made(api)
    fit(model, [], epochs=2)
    with averages(model):
        with averages(model):
            assert weight(model) == AVERAGES[2]
        model.evaluate(X, Y, callbacks=[EvaluateAverages()], verbose=0)
        assert weight(model) == AVERAGES[2]
    assert weight(model) == 7.0


def test_a_model_without_averages_yet(api):
    model = made(api)
    message = "has no averages yet: train it, or, before you load"
    with pytest.raises(ValueError, match=message), averages(model):
        pass
