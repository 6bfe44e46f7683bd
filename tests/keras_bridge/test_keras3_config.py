"""Configurations of bridged Keras 3 optimizers, and models that another process loads."""

import json
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer
from legacy_opt.compat import custom_objects, register_optimizer
from tests.support import running
from tests.support.keras import keras3_saving as saving
from tests.support.keras import keras_cases, keras_configs, keras_models
from tests.support.keras.keras_apis import KERAS_3
from tests.support.keras.keras_configs import EVERY_DECAY, run_python

bridged = KERAS_3.bridged
keras = KERAS_3.keras

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1.train


def through_json(optimizer, **options):
    """Returns the optimizer that Keras makes of what it serialized, after a trip through JSON."""
    saved = json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    return keras.optimizers.deserialize(saved, **options)


def assert_trains_alike(one, other, only=()):
    problem = keras_models.problem(steps=3)
    names = [name for name in problem.values if not only or name in only]
    traces = []
    for optimizer in (one, other):
        variables = {name: keras.Variable(problem.values[name], name=name) for name in names}
        steps = []
        for gradients in problem.gradients:
            optimizer.apply_gradients(keras_models.pairs(gradients, variables))
            steps.append({name: variable.numpy() for name, variable in variables.items()})
        traces.append(running.Trace(steps, {}))
    running.assert_same(*traces)


@pytest.mark.parametrize("name", keras_cases.CASES)
def test_what_is_saved_makes_the_same_optimizer(name, registry):
    case = keras_cases.CASES[name]
    optimizer = bridged(case.make(None))
    saved = optimizer.get_config()
    again = through_json(optimizer)
    assert again.get_config() == saved
    assert type(optimizer).from_config(json.loads(json.dumps(saved))).get_config() == saved
    assert optimizer.get_config() == saved  # from_config left it alone
    assert_trains_alike(optimizer, again, case.only)


def test_numbers_are_not_rounded():
    saved = bridged(v1.FtrlOptimizer(0.1, -0.4, 0.2, 0.3, 0.7)).get_config()
    assert saved["learning_rate"] == 0.1
    arguments = saved["optimizer"]["config"]
    assert arguments["learning_rate"] == 0.1 and arguments["learning_rate_power"] == -0.4
    assert arguments["l1_regularization_strength"] == 0.3


def test_changed_hyperparameters_are_saved():
    optimizer = bridged(v1.MomentumOptimizer(0.1, 0.9))
    optimizer.learning_rate = 0.2
    optimizer.momentum = 0.3
    again = through_json(optimizer)
    saved = again.get_config()
    assert saved["learning_rate"] == saved["optimizer"]["config"]["learning_rate"] == 0.2
    assert saved["optimizer"]["config"]["momentum"] == 0.3
    assert_trains_alike(bridged(v1.MomentumOptimizer(0.2, 0.3)), again)


def test_what_a_callback_assigned_is_saved():
    optimizer = bridged("Adam")
    optimizer.learning_rate.assign(0.25)
    assert through_json(optimizer).get_config()["learning_rate"] == 0.25


@pytest.mark.parametrize(
    "arguments",
    [
        {"clipnorm": 0.5},
        {"clipvalue": 0.01},
        {"global_clipnorm": 0.7},
        {"weight_decay": 0.25},
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
        {"loss_scale_factor": 4.0},
        {"fused": False},
        {"name": "mine"},
        {"learning_rate": 0.75},
    ],
    ids=lambda arguments: list(arguments)[0],
)
def test_arguments_of_keras_are_saved(arguments):
    optimizer = bridged(v1.AdagradOptimizer(0.1), **arguments)
    saved = optimizer.get_config()
    assert arguments.items() <= saved.items()
    again = through_json(optimizer)
    assert again.get_config() == saved
    assert_trains_alike(optimizer, again)


def test_sums_of_gradients_are_saved():
    optimizer = bridged("Adam", gradient_accumulation_steps=2)
    assert through_json(optimizer).get_config()["gradient_accumulation_steps"] == 2


def test_a_loss_scale_holds_its_optimizer():
    optimizer = keras.optimizers.LossScaleOptimizer(bridged("Adam"), initial_scale=8.0)
    again = through_json(optimizer)
    assert again.get_config() == optimizer.get_config()
    assert type(again.inner_optimizer) is type(optimizer.inner_optimizer)


# Learning rates.


@keras.saving.register_keras_serializable("tests")
class Halving(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule of the user's own."""

    def __init__(self, start):
        super().__init__()
        self.start = start

    def __call__(self, step):
        return self.start * 0.5 ** tf.cast(step, tf.float32)

    def get_config(self):
        return {"start": self.start}


class Unregistered(Halving):
    pass


@keras.saving.register_keras_serializable("tests")
def quarter():
    return 0.25


@pytest.mark.parametrize(
    "rate",
    [keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.7), Halving(0.5)],
    ids=lambda rate: type(rate).__name__,
)
def test_schedules_are_saved_as_keras_saves_them(rate):
    optimizer = bridged("Adam", learning_rate=rate)
    again = through_json(optimizer)
    assert again.get_config() == optimizer.get_config()
    assert type(again._learning_rate) is type(rate)
    assert_trains_alike(optimizer, again)


@pytest.mark.parametrize("make", [lambda **kw: keras.optimizers.Adam(**kw), None])
def test_schedules_that_are_not_registered_come_as_custom_objects(make):
    optimizer = make or (lambda **arguments: bridged("Adam", **arguments))
    optimizer = optimizer(learning_rate=Unregistered(0.5))
    again = through_json(optimizer, custom_objects={"Unregistered": Unregistered})
    assert type(again._learning_rate) is Unregistered
    assert_trains_alike(optimizer, again)


@pytest.mark.parametrize("function", [quarter, lambda: 0.25], ids=["registered", "lambda"])
def test_a_learning_rate_that_is_a_function_is_saved_as_it_is_now(function):
    """As the OptimizerV2 bridge does; Keras would load no function that is not registered."""
    again = through_json(bridged("Adam", learning_rate=function))
    assert again.get_config()["learning_rate"] == 0.25


@EVERY_DECAY
def test_the_decays_of_v1_are_saved_whole(decay):
    rate = decay(tf.Variable(0, dtype=tf.int64))
    optimizer = bridged(v1.AdagradOptimizer(rate))
    again = through_json(optimizer)
    assert again.get_config() == optimizer.get_config()
    assert_trains_alike(optimizer, again)


# Classes of the user's own: the registry is the same for both bridges.


def test_arguments_that_cannot_be_read_are_named():
    for optimizer, argument in [
        (keras_configs.KeepsElsewhere(0.1, 2), "factor"),
        (keras_configs.HoldsAFunction(0.1, len), "function"),
    ]:
        with pytest.raises(ValueError, match="%s .*get_config" % argument):
            bridged(optimizer).get_config()


def test_a_class_may_say_itself_what_it_was_given(registry):
    register_optimizer(keras_configs.Configured)
    optimizer = bridged(keras_configs.Configured(0.1, {"factor": 0.5}))
    optimizer.learning_rate = 0.2
    again = through_json(optimizer)
    assert again.get_config()["optimizer"]["config"] == {"learning_rate": 0.2, "factor": 0.5}
    assert_trains_alike(bridged(v1.GradientDescentOptimizer(0.1)), again, ("matrix",))


@pytest.mark.parametrize("safe_mode", [True, False])
def test_nothing_is_imported_by_a_name_that_is_saved(safe_mode, tmp_path, monkeypatch):
    (tmp_path / "imported_by_a_file.py").write_text("class Sgd:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    saved = keras.optimizers.serialize(bridged("Adagrad"))
    for name in ("imported_by_a_file.Sgd", "imported_by_a_file>Sgd", "Sgd", "Saver", "latest"):
        saved["config"]["optimizer"]["class_name"] = name
        with pytest.raises(ValueError, match="not registered.*register_optimizer") as error:
            keras.saving.deserialize_keras_object(saved, safe_mode=safe_mode)
        assert repr(name) in str(error.value)
    assert "imported_by_a_file" not in sys.modules


@pytest.mark.parametrize("safe_mode", [True, False])
def test_safe_mode_loads(safe_mode, tmp_path):
    model = saving.compiled(bridged("Adam"))
    model.save(str(tmp_path / "model.keras"))
    again = keras.models.load_model(str(tmp_path / "model.keras"), safe_mode=safe_mode)
    assert again.optimizer.get_config() == model.optimizer.get_config()


def test_a_cloned_model_takes_a_new_optimizer_of_the_same_configuration():
    model = saving.compiled(bridged("Adam"))
    saving.train(model, 0, 1)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    optimizer = type(model.optimizer).from_config(model.optimizer.get_config())
    clone.compile(optimizer, keras.losses.MeanSquaredError(), run_eagerly=True)
    saving.train(clone, 1, 2)
    assert optimizer.iterations.numpy() == 1 and model.optimizer.iterations.numpy() == 1


# A process that has made no bridged optimizer.

LOAD = """
import sys, warnings
import numpy as np
import tensorflow as tf
home, with_custom_objects = sys.argv[1], sys.argv[2] == "True"
arguments = {}
if with_custom_objects:
    from legacy_opt import compat
    arguments["custom_objects"] = compat.custom_objects()
model = tf.keras.models.load_model(home + "/model.keras", **arguments)
model.run_eagerly = True
data = np.load(home + "/data.npz")
model.fit(data["ids"], data["targets"], 8, shuffle=False, verbose=0)
state = model.get_weights() + [variable.numpy() for variable in model.optimizer.variables]
np.savez(home + "/state.npz", *state)
"""


@pytest.mark.parametrize("with_custom_objects", [True, False])
def test_another_process_goes_on_with_the_same_bits(with_custom_objects, tmp_path):
    """Without custom objects newer Keras refuses; older imports what a file names."""
    make = lambda: bridged(AdagradDecayOptimizer(0.1, None, 0.1, 2, 0.5))  # noqa: E731
    model = saving.compiled(make())
    saving.train(model, 0, 3)
    model.save(str(tmp_path / "model.keras"))
    saving.train(model, 3, 6)
    ids, targets = (np.concatenate(part) for part in zip(*saving.MODEL.batches[3:]))
    np.savez(tmp_path / "data.npz", ids=ids, targets=targets)
    try:
        run_python(LOAD, tmp_path, with_custom_objects)
    except AssertionError as error:
        if with_custom_objects:
            raise
        assert re.search("BridgedOptimizer|custom_objects", str(error))
        return
    loaded = np.load(tmp_path / "state.npz")
    expected = model.get_weights() + [value.numpy() for value in model.optimizer.variables]
    assert len(loaded.files) == len(expected)
    for number, value in enumerate(expected):
        other = loaded["arr_%d" % number]
        assert other.dtype == value.dtype and np.array_equal(other, value)


def test_custom_objects_have_every_name_that_keras_saves():
    names = custom_objects()
    saved = keras.optimizers.serialize(bridged("Adam"))
    assert saved["class_name"] in names and saved["registered_name"] in names
    assert set(names.values()) == {type(bridged("Adam"))}
