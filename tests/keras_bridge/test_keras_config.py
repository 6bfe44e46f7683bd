"""Configurations of bridged optimizers: plain data, read back through a registry of classes."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, versions
from legacy_opt.compat import config, custom_objects, register_optimizer
from tests.support import rules, running
from tests.support.keras import keras_cases, keras_models
from tests.support.keras.keras_apis import OPTIMIZER_V2
from tests.support.keras.keras_configs import (
    EVERY_DECAY,
    Configured,
    HoldsAFunction,
    KeepsElsewhere,
    run_python,
)

bridged = OPTIMIZER_V2.bridged

v1 = tf.compat.v1.train
keras = versions.keras_2()

# Their constructors keep an argument under no name of its own, or were given a function.
CANNOT_BE_SAVED = {
    "contrib.opt PowerSign": "argument base .* get_config",
    "contrib.opt PowerSign sign_decay_fn": "argument base .* get_config",
    "contrib.opt AddSign sign_decay_fn": "argument sign_decay_fn .* get_config",
}
SAVED = [name for name in keras_cases.CASES if name not in CANNOT_BE_SAVED]


def through_json(optimizer):
    """Returns the optimizer that Keras makes of what it serialized, after a trip through JSON."""
    return keras.optimizers.deserialize(
        json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    )


def assert_trains_alike(one, other, only=()):
    problem = keras_models.problem(steps=3)
    if only:
        chosen = [name for name in problem.values if name in only]
        steps = [{name: step[name] for name in chosen} for step in problem.gradients]
        values = {name: problem.values[name] for name in chosen}
        problem = problem._replace(values=values, gradients=steps)
    expected, _ = keras_models.loop(problem, one, "eager")
    running.assert_same(keras_models.loop(problem, other, "eager")[0], expected)


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved_makes_the_same_optimizer(name, registry):
    case = keras_cases.CASES[name]
    optimizer = bridged(case.make(None))
    again = through_json(optimizer)
    saved = optimizer.get_config()
    assert again.get_config() == saved
    assert type(optimizer).from_config(json.loads(json.dumps(saved))).get_config() == saved
    assert_trains_alike(optimizer, again, case.only)


def test_every_argument_is_in_the_configuration():
    optimizer = bridged(
        v1.FtrlOptimizer(0.1, -0.4, 0.2, 0.3, 0.7, l2_shrinkage_regularization_strength=0.6)
    )
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
    for argument, value in expected.items():  # 0.1, not the float32 next to it
        assert saved["config"][argument] == value, argument


def test_the_global_step_is_not_saved():
    step = tf.compat.v2.Variable(7, dtype=tf.int64)
    optimizer = bridged(AdagradDecayOptimizer(0.1, step, accumulator_decay_step=5))
    saved = optimizer.get_config()["optimizer"]["config"]
    assert "global_step" not in saved and saved["accumulator_decay_step"] == 5


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
    keras.backend.set_value(optimizer.lr, 0.25)
    assert optimizer.get_config()["learning_rate"] == 0.25
    assert through_json(optimizer).get_config() == optimizer.get_config()


def test_a_graph_knows_its_configuration():
    with tf.Graph().as_default(), tf.compat.v1.Session():
        optimizer = bridged(v1.MomentumOptimizer(0.1, 0.9))
        variable = tf.compat.v2.Variable([1.0])
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
        saved = optimizer.get_config()
    assert saved == bridged(v1.MomentumOptimizer(0.1, 0.9)).get_config()


@pytest.mark.parametrize(
    "arguments",
    [
        {"clipnorm": 0.5},
        {"clipvalue": 0.01},
        {"global_clipnorm": 0.7},
        {"decay": 0.25},
        {"fused": False},
        {"name": "mine"},
        {"learning_rate": 0.75},
    ],
    ids=str,
)
def test_arguments_of_keras_are_saved(arguments):
    optimizer = bridged(v1.AdagradOptimizer(0.1), **arguments)
    saved = optimizer.get_config()
    (item,) = arguments.items()
    assert item in saved.items()
    again = through_json(optimizer)
    assert again.get_config() == saved
    assert_trains_alike(optimizer, again)


def test_schedules_are_saved_as_keras_saves_them():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5, 2, 0.7)
    optimizer = bridged("Adam", learning_rate=schedule)
    again = through_json(optimizer)
    assert again.get_config() == optimizer.get_config()
    assert again.learning_rate.get_config() == schedule.get_config()
    assert_trains_alike(optimizer, again)


class Halving(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule of the user's own."""

    def __init__(self, start):
        super().__init__()
        self.start = start

    def __call__(self, step):
        return self.start * 0.5 ** tf.cast(step, tf.float32)

    def get_config(self):
        return {"start": self.start}


def test_schedules_of_your_own_come_as_custom_objects():
    optimizer = bridged("Adagrad", learning_rate=Halving(0.5))
    saved = json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    again = keras.optimizers.deserialize(saved, custom_objects={"Halving": Halving})
    assert again.learning_rate.start == 0.5
    assert_trains_alike(optimizer, again)


def test_a_learning_rate_that_is_a_function_is_saved_as_it_is_now():
    again = through_json(bridged(v1.AdagradOptimizer(lambda: 0.25)))
    assert again.get_config()["learning_rate"] == 0.25


@EVERY_DECAY
def test_the_decays_of_v1_are_saved_whole(decay):
    rate = decay(tf.compat.v2.Variable(0, dtype=tf.int64))
    optimizer = bridged(v1.AdagradOptimizer(rate))
    again = through_json(optimizer)
    assert again.get_config() == optimizer.get_config()
    assert_trains_alike(optimizer, again)


# Classes of the user's own.


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
def test_arguments_that_cannot_be_read_are_named(optimizer, argument):
    with pytest.raises(ValueError, match="%s .*get_config" % argument) as error:
        bridged(optimizer).get_config()
    assert type(optimizer).__name__ in str(error.value)


def test_contrib_optimizers_that_cannot_be_read_are_named():
    for name in set(CANNOT_BE_SAVED) & set(keras_cases.CASES):
        with pytest.raises(ValueError, match=CANNOT_BE_SAVED[name]):
            bridged(keras_cases.CASES[name].make(None)).get_config()


def test_a_class_may_say_itself_what_it_was_given(registry):
    register_optimizer(Configured)
    optimizer = bridged(Configured(0.1, {"factor": 0.5}))
    optimizer.learning_rate = 0.2
    again = through_json(optimizer)
    assert again.get_config() == optimizer.get_config()
    assert again.get_config()["optimizer"]["config"] == {"learning_rate": 0.2, "factor": 0.5}
    assert_trains_alike(bridged(v1.GradientDescentOptimizer(0.1)), again, ("matrix",))


def test_classes_are_registered_by_call_and_by_decorator(registry):
    @register_optimizer
    class Plain(v1.GradientDescentOptimizer):
        pass

    @register_optimizer(name="acme>Sgd")
    class Named(v1.GradientDescentOptimizer):
        pass

    assert register_optimizer(rules.MomentumRule) is rules.MomentumRule
    for cls, name in [(Plain, "Plain"), (Named, "acme>Sgd")]:
        optimizer = bridged(cls(0.1))
        assert optimizer.get_config()["optimizer"]["class_name"] == name
        again = through_json(optimizer)
        assert type(again._adopted).__mro__[2] is cls


def test_one_name_is_one_class(registry):
    def make_class():
        class Twin(v1.GradientDescentOptimizer):
            pass

        return Twin

    class Twin(v1.GradientDescentOptimizer):
        pass

    register_optimizer(make_class())
    again = register_optimizer(make_class())  # as a notebook cell does that is run again
    assert config._find("Twin") is again
    with pytest.raises(ValueError, match="'Twin' is the name of .* pass another name="):
        register_optimizer(Twin)
    with pytest.raises(ValueError, match="'AdamOptimizer' is the name of"):
        register_optimizer(Twin, name="AdamOptimizer")
    register_optimizer(Twin, name="other")
    assert config._find("other") is Twin


def test_a_twin_is_not_saved_under_the_name_of_a_stock_optimizer(registry):
    class AdamOptimizer(v1.GradientDescentOptimizer):
        pass

    with pytest.raises(ValueError, match="'AdamOptimizer' is the name of"):
        bridged(AdamOptimizer(0.1)).get_config()


def test_only_optimizers_are_registered():
    for what in (int, "Adam", versions.optimizer_v2()):
        with pytest.raises(TypeError, match="a subclass of tf.compat.v1.train.Optimizer"):
            register_optimizer(what)


def test_nothing_is_imported_by_a_name_that_is_saved(tmp_path, monkeypatch):
    (tmp_path / "imported_by_a_file.py").write_text("class Sgd:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    saved = bridged("Adagrad").get_config()
    for name in ("imported_by_a_file.Sgd", "imported_by_a_file>Sgd", "Sgd", "Saver", "latest"):
        saved["optimizer"]["class_name"] = name
        with pytest.raises(ValueError, match="not registered.*register_optimizer") as error:
            type(bridged("Adagrad")).from_config(saved)
        assert repr(name) in str(error.value)
    assert "imported_by_a_file" not in sys.modules


# A process that has made no bridged optimizer.


def test_importing_compat_imports_no_keras():
    run_python(
        """
        import tensorflow
        before = set(sys.modules)
        import legacy_opt.compat
        legacy_opt.compat.register_optimizer
        new = set(sys.modules) - before
        assert "legacy_opt.compat.config" in new
        assert not [name for name in new if "keras" in name.split(".")[0]], new
        assert "legacy_opt.compat.optimizer_v2" not in new
        """
    )


def test_another_process_loads_what_this_one_saved(tmp_path):
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.compile(bridged(AdagradDecayOptimizer(0.1, None, accumulator_decay_step=3)), "mse")
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


def test_custom_objects_have_every_name_that_keras_saves():
    names = custom_objects(api="optimizer_v2")
    saved = keras.optimizers.serialize(bridged("Adam"))
    assert saved["class_name"] in names
    assert saved.get("registered_name", saved["class_name"]) in names
    assert set(names.values()) == {type(bridged("Adam"))}
