"""Tests get_config and from_config of bridged optimizers (made by `to_keras`)."""

import functools
import json
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, CyclicalLearningRate
from legacy_opt.compat import custom_objects, register_optimizer
from legacy_opt.compat.in_keras.v1_optimizers import serialization
from tests.keras_bridge.keras_configs import (
    EVERY_DECAY,
    Configured,
    HoldsAFunction,
    KeepsElsewhere,
    run_python,
)
from tests.support import rules, running
from tests.support.keras import keras3_saving as saving
from tests.support.keras import keras_apis, keras_cases, keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2, of_each
from tests.support.processes import programs

v1 = tf.compat.v1.train

# {optimizer: pattern of the error message}. These optimizers store no attribute for an argument, or
# have received a function as an argument.
CANNOT_BE_SAVED = {
    "contrib.opt PowerSign": "argument base .* get_config",
    "contrib.opt PowerSign sign_decay_fn": "argument base .* get_config",
    "contrib.opt AddSign sign_decay_fn": "argument sign_decay_fn .* get_config",
}
SAVED = [name for name in keras_cases.CASES if name not in CANNOT_BE_SAVED]


def through_json(api, optimizer, **options):
    """Saves an optimizer as JSON text; returns the optimizer that Keras loads from the text."""
    saved = json.loads(json.dumps(api.keras.optimizers.serialize(optimizer)))
    return api.keras.optimizers.deserialize(saved, **options)


def assert_trains_alike(one, other, only=()):
    problem = keras_models.problem(steps=3)
    if only:
        chosen = [name for name in problem.values if name in only]
        steps = [{name: step[name] for name in chosen} for step in problem.gradients]
        values = {name: problem.values[name] for name in chosen}
        problem = problem._replace(values=values, gradients=steps)
    expected, _ = keras_models.loop(problem, one, "eager")
    running.assert_same(keras_models.loop(problem, other, "eager")[0], expected)


@keras_apis.in_turn("name", SAVED)
def test_a_saved_configuration_makes_the_same_optimizer(api, name, registry):
    case = keras_cases.CASES[name]
    optimizer = api.bridged(case.make(None))
    saved = optimizer.get_config()
    again = through_json(api, optimizer)
    assert again.get_config() == saved
    assert type(optimizer).from_config(json.loads(json.dumps(saved))).get_config() == saved
    assert optimizer.get_config() == saved  # from_config has not changed `optimizer`
    assert_trains_alike(optimizer, again, case.only)


def test_every_argument_is_in_the_configuration(api):
    optimizer = api.bridged(
        v1.FtrlOptimizer(0.1, -0.4, 0.2, 0.3, 0.7, l2_shrinkage_regularization_strength=0.6)
    )
    assert optimizer.get_config()["learning_rate"] == 0.1
    saved = optimizer.get_config()["optimizer"]
    assert saved["class_name"] == "FtrlOptimizer"
    expected = {
        "learning_rate": 0.1,
        "learning_rate_power": -0.4,
        "initial_accumulator_value": 0.2,
        "l1_regularization_strength": 0.3,
        "l2_regularization_strength": 0.7,
        "l2_shrinkage_regularization_strength": 0.6,
        "name": "Ftrl",
    }
    for argument, value in expected.items():  # 0.1 is not rounded to float32
        assert saved["config"][argument] == value, argument


def test_the_global_step_is_not_saved(api):
    step = tf.compat.v2.Variable(7, dtype=tf.int64)
    optimizer = api.bridged(AdagradDecayOptimizer(0.1, step, accumulator_decay_step=5))
    saved = optimizer.get_config()["optimizer"]["config"]
    assert "global_step" not in saved and saved["accumulator_decay_step"] == 5


def test_changed_hyperparameters_are_saved(api):
    optimizer = api.bridged(v1.MomentumOptimizer(0.1, 0.9))
    optimizer.learning_rate = 0.2
    optimizer.momentum = 0.3
    again = through_json(api, optimizer)
    saved = again.get_config()
    assert saved["learning_rate"] == saved["optimizer"]["config"]["learning_rate"] == 0.2
    assert saved["optimizer"]["config"]["momentum"] == 0.3
    assert_trains_alike(api.bridged(v1.MomentumOptimizer(0.2, 0.3)), again)


def test_a_learning_rate_assigned_by_a_callback_is_saved(api):
    optimizer = api.bridged("Adam")
    if api is OPTIMIZER_V2:
        api.keras.backend.set_value(optimizer.lr, 0.25)
    else:
        optimizer.learning_rate.assign(0.25)
    assert optimizer.get_config()["learning_rate"] == 0.25
    assert through_json(api, optimizer).get_config() == optimizer.get_config()


def test_get_config_in_a_graph():
    bridged = OPTIMIZER_V2.bridged
    with tf.Graph().as_default(), tf.compat.v1.Session():
        optimizer = bridged(v1.MomentumOptimizer(0.1, 0.9))
        variable = tf.compat.v2.Variable([1.0])
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
        saved = optimizer.get_config()
    assert saved == bridged(v1.MomentumOptimizer(0.1, 0.9)).get_config()


OF_BOTH = [
    {"clipnorm": 0.5},
    {"clipvalue": 0.01},
    {"global_clipnorm": 0.7},
    {"fused": False},
    {"name": "mine"},
    {"learning_rate": 0.75},
]
OF_KERAS_3 = [
    {"weight_decay": 0.25},
    {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
    {"loss_scale_factor": 4.0},
]


@of_each("arguments", optimizer_v2=OF_BOTH + [{"decay": 0.25}], keras3=OF_BOTH + OF_KERAS_3)
def test_arguments_of_keras_are_saved(api, arguments):
    optimizer = api.bridged(v1.AdagradOptimizer(0.1), **arguments)
    saved = optimizer.get_config()
    assert arguments.items() <= saved.items()
    again = through_json(api, optimizer)
    assert again.get_config() == saved
    assert_trains_alike(optimizer, again)


@pytest.mark.keras3
def test_gradient_accumulation_steps_are_saved():
    optimizer = KERAS_3.bridged("Adam", gradient_accumulation_steps=2)
    assert through_json(KERAS_3, optimizer).get_config()["gradient_accumulation_steps"] == 2


@pytest.mark.keras3
def test_a_loss_scale_optimizer_is_saved_with_its_inner_optimizer():
    scaled = KERAS_3.keras.optimizers.LossScaleOptimizer
    optimizer = scaled(KERAS_3.bridged("Adam"), initial_scale=8.0)
    again = through_json(KERAS_3, optimizer)
    assert again.get_config() == optimizer.get_config()
    assert type(again.inner_optimizer) is type(optimizer.inner_optimizer)


# Learning rates.


@functools.lru_cache(maxsize=None)
def schedule_class(api, registered):
    """Returns a user-defined schedule class."""

    class Halving(api.keras.optimizers.schedules.LearningRateSchedule):
        def __init__(self, start):
            super().__init__()
            self.start = start

        def __call__(self, step):
            return self.start * 0.5 ** tf.cast(step, tf.float32)

        def get_config(self):
            return {"start": self.start}

    return api.keras.saving.register_keras_serializable("tests")(Halving) if registered else Halving


@of_each("kind", optimizer_v2=["Keras' own"], keras3=["Keras' own", "registered"])
def test_schedules_are_saved_as_keras_saves_them(api, kind):
    if kind == "registered":
        schedule = schedule_class(api, registered=True)(0.5)
    else:
        schedule = api.keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.7)
    optimizer = api.bridged("Adam", learning_rate=schedule)
    again = through_json(api, optimizer)
    assert again.get_config() == optimizer.get_config()
    assert type(api.schedule(again)) is type(schedule)
    assert api.schedule(again).get_config() == schedule.get_config()
    assert_trains_alike(optimizer, again)


@of_each("name", optimizer_v2=["Adagrad"], keras3=["Adam", "Keras' own Adam"])
def test_unregistered_schedules_are_loaded_with_custom_objects(api, name):
    cls = schedule_class(api, registered=False)
    if name in keras_models.V1_OPTIMIZERS:
        optimizer = api.bridged(name, learning_rate=cls(0.5))
    else:
        optimizer = api.keras.optimizers.Adam(cls(0.5))
    again = through_json(api, optimizer, custom_objects={"Halving": cls})
    assert type(api.schedule(again)) is cls and api.schedule(again).start == 0.5
    assert_trains_alike(optimizer, again)


@of_each("kind", optimizer_v2=["of v1", "lambda"], keras3=["of v1", "lambda", "registered"])
def test_a_callable_learning_rate_is_saved_as_its_current_value(api, kind):
    """The function itself is not saved, even if it is registered with Keras."""
    quarter = lambda: 0.25  # noqa: E731
    if kind == "of v1":
        optimizer = api.bridged(v1.AdagradOptimizer(quarter))
    else:
        if kind == "registered":
            quarter = api.keras.saving.register_keras_serializable("tests")(quarter)
        optimizer = api.bridged("Adam", learning_rate=quarter)
    assert through_json(api, optimizer).get_config()["learning_rate"] == 0.25


@EVERY_DECAY
def test_v1_learning_rate_decays_are_saved(api, decay):
    rate = decay(tf.compat.v2.Variable(0, dtype=tf.int64))
    optimizer = api.bridged(v1.AdagradOptimizer(rate))
    again = through_json(api, optimizer)
    assert again.get_config() == optimizer.get_config()
    assert_trains_alike(optimizer, again)


# User-defined classes. Both bridges use the same registry.


class TakesAnything(v1.GradientDescentOptimizer):
    def __init__(self, *arguments):
        super().__init__(*arguments)


@pytest.mark.parametrize(
    "optimizer, argument",
    [
        (KeepsElsewhere(0.1, 2), "factor"),
        (TakesAnything(0.1), r"\*arguments"),
        (HoldsAFunction(0.1, len), "function"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_arguments_that_cannot_be_read_are_named(api, optimizer, argument):
    with pytest.raises(ValueError, match=f"{argument} .*get_config") as error:
        api.bridged(optimizer).get_config()
    assert type(optimizer).__name__ in str(error.value)


def test_contrib_optimizers_that_cannot_be_read_are_named():
    for name in set(CANNOT_BE_SAVED) & set(keras_cases.CASES):
        with pytest.raises(ValueError, match=CANNOT_BE_SAVED[name]):
            OPTIMIZER_V2.bridged(keras_cases.CASES[name].make(None)).get_config()


def test_a_class_may_define_its_own_get_config(api, registry):
    register_optimizer(Configured)
    optimizer = api.bridged(Configured(0.1, {"factor": 0.5}))
    optimizer.learning_rate = 0.2
    again = through_json(api, optimizer)
    assert again.get_config() == optimizer.get_config()
    assert again.get_config()["optimizer"]["config"] == {"learning_rate": 0.2, "factor": 0.5}
    assert_trains_alike(api.bridged(v1.GradientDescentOptimizer(0.1)), again, ("matrix",))


def test_classes_are_registered_by_call_and_by_decorator(api, registry):
    @register_optimizer
    class Plain(v1.GradientDescentOptimizer):
        pass

    @register_optimizer(name="acme>Sgd")
    class Named(v1.GradientDescentOptimizer):
        pass

    assert register_optimizer(rules.MomentumRule) is rules.MomentumRule
    for cls, name in [(Plain, "Plain"), (Named, "acme>Sgd")]:
        optimizer = api.bridged(cls(0.1))
        assert optimizer.get_config()["optimizer"]["class_name"] == name
        again = through_json(api, optimizer)
        assert type(again._v1.optimizer).__mro__[2] is cls


def test_a_name_is_registered_for_one_class(registry):
    def make_class():
        class Twin(v1.GradientDescentOptimizer):
            pass

        return Twin

    class Twin(v1.GradientDescentOptimizer):
        pass

    register_optimizer(make_class())
    again = register_optimizer(make_class())  # like a notebook cell that runs again
    assert serialization._find("Twin") is again
    with pytest.raises(ValueError, match="'Twin' is the name of .* pass another name="):
        register_optimizer(Twin)
    with pytest.raises(ValueError, match="'AdamOptimizer' is the name of"):
        register_optimizer(Twin, name="AdamOptimizer")
    register_optimizer(Twin, name="other")
    assert serialization._find("other") is Twin


def test_a_class_with_the_name_of_a_stock_optimizer_is_not_saved(registry):
    class AdamOptimizer(v1.GradientDescentOptimizer):
        pass

    with pytest.raises(ValueError, match="'AdamOptimizer' is the name of"):
        OPTIMIZER_V2.bridged(AdamOptimizer(0.1)).get_config()


def test_only_optimizers_are_registered():
    for what in (int, "Adam", type(OPTIMIZER_V2.bridged("Adam"))):
        with pytest.raises(TypeError, match="a subclass of tf.compat.v1.train.Optimizer"):
            register_optimizer(what)


@of_each("safe_mode", optimizer_v2=[None], keras3=[True, False])
def test_loading_imports_no_module_by_a_saved_name(api, safe_mode, tmp_path, monkeypatch):
    (tmp_path / "imported_by_a_file.py").write_text("class SgdOfAFile:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    saved = api.keras.optimizers.serialize(api.bridged("Adagrad"))
    for name in (
        "imported_by_a_file.SgdOfAFile",
        "imported_by_a_file>SgdOfAFile",
        "SgdOfAFile",
        "Saver",
        "latest",
    ):
        saved["config"]["optimizer"]["class_name"] = name
        with pytest.raises(ValueError, match="not registered.*register_optimizer") as error:
            if safe_mode is None:
                type(api.bridged("Adagrad")).from_config(saved["config"])
            else:
                api.keras.saving.deserialize_keras_object(saved, safe_mode=safe_mode)
        assert repr(name) in str(error.value)
    assert "imported_by_a_file" not in sys.modules


def test_custom_objects_have_every_name_that_keras_saves(api):
    names = custom_objects(api=api.name)
    saved = api.keras.optimizers.serialize(api.bridged("Adam"))
    assert saved["class_name"] in names
    assert saved.get("registered_name", saved["class_name"]) in names
    schedules = [each for each in names.values() if issubclass(each, CyclicalLearningRate)]
    for cls in {*schedules}:
        saved = api.keras.optimizers.schedules.serialize(cls(0.1, 1.0, 2))
        assert saved["class_name"] in names
        assert saved.get("registered_name", saved["class_name"]) in names
    classes = {type(api.bridged("Adam")), *schedules}
    assert len(classes) == 4
    if api is KERAS_3:
        classes.add(type(api.bridged(OPTIMIZER_V2.optimizers.SGD(0.1))))
        assert custom_objects() == names
    assert set(names.values()) == classes


@pytest.mark.keras3
@pytest.mark.parametrize("safe_mode", [True, False])
def test_safe_mode_loads(safe_mode, tmp_path):
    model = saving.compiled(KERAS_3.bridged("Adam"))
    model.save(str(tmp_path / "model.keras"))
    again = KERAS_3.keras.models.load_model(str(tmp_path / "model.keras"), safe_mode=safe_mode)
    assert again.optimizer.get_config() == model.optimizer.get_config()


@pytest.mark.keras3
def test_a_cloned_model_takes_a_new_optimizer_of_the_same_configuration():
    model = saving.compiled(KERAS_3.bridged("Adam"))
    saving.train(model, 0, 1)
    clone = KERAS_3.keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    optimizer = type(model.optimizer).from_config(model.optimizer.get_config())
    clone.compile(optimizer, KERAS_3.keras.losses.MeanSquaredError(), run_eagerly=True)
    saving.train(clone, 1, 2)
    assert optimizer.iterations.numpy() == 1 and model.optimizer.iterations.numpy() == 1


# Tests in new processes, which have not created a bridged optimizer.


IMPORTS_NO_KERAS = """
import sys, tensorflow
before = set(sys.modules)
import legacy_opt.compat
legacy_opt.compat.register_optimizer
new = set(sys.modules) - before
assert "legacy_opt.compat.in_keras.v1_optimizers.serialization" in new
assert not [name for name in new if "keras" in name.split(".")[0]], new
assert "legacy_opt.compat.in_keras.keras_bridge.keras2.optimizer" not in new
"""


def test_importing_compat_imports_no_keras():
    done = programs.run_in_new_python("-c", IMPORTS_NO_KERAS, seconds=120)
    assert done.returncode == 0, done.stderr


def test_another_process_loads_saved_models_with_keras_2(tmp_path):
    keras = OPTIMIZER_V2.keras
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    optimizer = AdagradDecayOptimizer(0.1, None, accumulator_decay_step=3)
    model.compile(OPTIMIZER_V2.bridged(optimizer), "mse")
    model.fit(np.ones([4, 2], "f"), np.ones([4, 1], "f"), verbose=0)
    paths = [tmp_path / name for name in ("model.h5", "model.keras", "saved_model")]
    for path in paths:
        model.save(str(path), **({} if path.suffix else {"save_format": "tf"}))
    run_python(
        """
        import tensorflow as tf
        if not tf.executing_eagerly():
            tf.compat.v1.enable_eager_execution()
        from legacy_opt import compat, versions
        load = versions.keras_2().models.load_model
        for path in sys.argv[1:]:
            model = load(path, custom_objects=compat.custom_objects(api="optimizer_v2"))
            saved = model.optimizer.get_config()["optimizer"]
            assert saved["class_name"] == "AdagradDecayOptimizer", saved
            assert saved["config"]["accumulator_decay_step"] == 3, saved
            model.fit(tf.ones([4, 2]), tf.ones([4, 1]), verbose=0, steps_per_epoch=1)
        """,
        *paths,
    )


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


@pytest.mark.keras3
@pytest.mark.parametrize("with_custom_objects", [True, False])
def test_another_process_continues_with_the_same_bits_with_keras_3(with_custom_objects, tmp_path):
    """Without custom_objects, newer versions of Keras 3 raise an error; older versions do not."""
    optimizer = AdagradDecayOptimizer(0.1, None, 0.1, 2, 0.5)
    model = saving.compiled(KERAS_3.bridged(optimizer))
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
        other = loaded[f"arr_{number}"]
        assert other.dtype == value.dtype and np.array_equal(other, value)
