"""Tests of `legacy-opt inspect` and `convert` with object-based checkpoints.

tf.train.Checkpoint writes object-based checkpoints. A bridged optimizer is a Keras optimizer that
`to_keras` made.
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat.in_keras import beta_powers
from tests.support.checkpoints import v1_checkpoints as training
from tests.support.checkpoints.v1_checkpoints import AFTER, BEFORE, assert_equal, tensors
from tests.support.keras import keras_apis
from tests.support.processes.command_line import Screen, forget_module

v1 = tf.compat.v1
KERAS = keras_apis.keras_2()
OWN = getattr(KERAS.optimizers, "legacy", KERAS.optimizers)
NEW = KERAS.optimizers if OWN is not KERAS.optimizers else None
USERS_MODULE = """
import tensorflow as tf
import legacy_opt
train = tf.compat.v1.train
adam = train.AdamOptimizer(0.01)
other_adam = train.AdamOptimizer(0.01, beta1=0.8)
momentum = train.MomentumOptimizer(0.1, 0.9)
adagrad = train.AdagradOptimizer(0.1)
def rms_prop(): return train.RMSPropOptimizer(0.1)
def adadelta(): return train.AdadeltaOptimizer(0.1)
def ftrl(): return train.FtrlOptimizer(0.1)
def decay(): return legacy_opt.AdagradDecayOptimizer(0.1, None, accumulator_decay_step=3)
def decay_v2(): return legacy_opt.AdagradDecayOptimizerV2(0.1, None, accumulator_decay_step=3)
not_one = 3
"""
MADE = {
    "adam": lambda step: v1.train.AdamOptimizer(0.01),
    "momentum": lambda step: v1.train.MomentumOptimizer(0.1, 0.9),
    "decay": lambda step: legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=3),
    "decay_v2": lambda step: legacy_opt.AdagradDecayOptimizerV2(
        0.1, step, accumulator_decay_step=3
    ),
}


@pytest.fixture
def screen(capsys, tmp_path, monkeypatch):
    (tmp_path / "of_a_user.py").write_text(USERS_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_module("of_a_user", monkeypatch)
    return Screen(capsys)


def saved(path, optimizer, variables):
    """Writes an object-based checkpoint and returns its path."""
    return tf.train.Checkpoint(optimizer=optimizer, **variables).save(str(path))


def trained_bridged(name, api):
    keras = training.KerasTraining(training.problem(), MADE[name], api, start=1)
    keras.train(0, BEFORE)
    return keras


def convert(screen, source, destination, optimizer, *options, code=0):
    optimizer = "of_a_user:" + optimizer
    words = ("convert", source, destination, "--optimizer", optimizer) + options
    return screen.json(*words, code=code)


@pytest.mark.parametrize("api", training.APIS)
@pytest.mark.parametrize(
    ["name", "into"],
    [("adam", "adam"), ("momentum", "momentum"), ("decay", "decay"), ("decay", "decay_v2")],
)
def test_a_bridged_training_continues_in_a_session(tmp_path, screen, api, name, into):
    keras = trained_bridged(name, api)
    source = saved(tmp_path / "keras", keras.optimizer, keras.variables)
    result = convert(screen, source, tmp_path / "v1", into)
    assert result["complete"]
    restored, after, end = training.continued_in_v1(tmp_path / "v1", keras.problem, MADE[into])
    expected = keras.state()
    if name == into:
        assert_equal(restored, expected)
    training.assert_same_steps(after, keras.train(BEFORE, BEFORE + AFTER))
    assert end[("step",)] == BEFORE + AFTER


def trained_by_keras(optimizer):
    """Trains variables with one of Keras' own optimizers; returns the variables by name."""
    problem = training.problem()
    variables = training.keras_variables(problem, "optimizer_v2", 1)
    keras = training.KerasTraining(problem, MADE["adam"], "optimizer_v2", variables=variables)
    keras.optimizer = optimizer
    keras.train(0, BEFORE)
    return variables


@pytest.mark.parametrize(
    ["own", "name", "slots"],
    [
        (lambda: OWN.Adam(0.01), "adam", {"m": "Adam", "v": "Adam_1"}),
        (lambda: OWN.Adagrad(0.1), "adagrad", {"accumulator": "Adagrad"}),
        (lambda: OWN.RMSprop(0.1), "rms_prop", {"rms": "RMSProp"}),
        (
            lambda: OWN.RMSprop(0.1, momentum=0.9),
            "rms_prop",
            {"rms": "RMSProp", "momentum": "RMSProp_1"},
        ),
        (
            lambda: OWN.Adadelta(0.1),
            "adadelta",
            {"accum_grad": "Adadelta", "accum_var": "Adadelta_1"},
        ),
        (lambda: OWN.Ftrl(0.1), "ftrl", {"accumulator": "Ftrl", "linear": "Ftrl_1"}),
    ],
)
def test_slots_of_keras_2_optimizers_get_v1_names(tmp_path, screen, own, name, slots):
    optimizer = own()
    variables = trained_by_keras(optimizer)
    source = saved(tmp_path / "keras", optimizer, variables)
    assert convert(screen, source, tmp_path / "v1", name)["complete"]
    expected = {variable: value.numpy() for variable, value in variables.items()}
    for variable, value in variables.items():
        for slot, v1_name in slots.items():
            expected[f"{variable}/{v1_name}"] = optimizer.get_slot(value, slot).numpy()
        if name == "rms_prop" and "momentum" not in slots:
            expected[variable + "/RMSProp_1"] = np.zeros_like(value.numpy())
    expected["global_step"] = np.int64(BEFORE)
    if name == "adam":  # a Session trains the same steps to get the expected powers of beta
        with training.v1_training(training.problem(), MADE["adam"]) as session:
            session.train(0, BEFORE)
            state = session.state()
        for power in ("beta1_power", "beta2_power"):
            expected[power] = state["shared", power]
    assert_equal(tensors(tmp_path / "v1"), expected)


@pytest.mark.parametrize("beta", [0.9, 0.999])
def test_powers_of_beta_equal_those_of_a_session(beta):
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("x", [2], use_resource=True)
        optimizer = v1.train.AdamOptimizer(beta1=beta)
        train_op = optimizer.apply_gradients([(tf.zeros([2]), variable)])
        power, _ = optimizer._get_beta_accumulators()
        session.run(v1.global_variables_initializer())
        for steps in range(901):  # from 829 on, 0.9 ** steps is a subnormal float32 number
            if steps in (0, 1, 7, 100, 820, 828, 829, 900):
                found = beta_powers.power(beta, steps)
                assert found.dtype == np.float32 and found == session.run(power), steps
            session.run(train_op)


def test_a_checkpoint_of_variables_alone(screen, tmp_path):
    variable = tf.Variable([1.0, 2.0], name="x")
    source = tf.train.Checkpoint(x=variable).save(str(tmp_path / "keras"))
    assert screen.json("convert", source, tmp_path / "v1")["complete"]
    assert_equal(tensors(tmp_path / "v1"), {"x": np.float32([1, 2])})


def test_a_name_map(tmp_path, screen):
    keras = trained_bridged("adam", "optimizer_v2")
    source = saved(tmp_path / "keras", keras.optimizer, keras.variables)
    assert convert(screen, source, tmp_path / "plain", "adam")["complete"]
    (tmp_path / "map.json").write_text(
        '{"matrix": "tower/w", "tower/w/Adam_1": "odd", "global_step": null, "beta1_power": "b1"}'
    )
    options = ("--name-map", tmp_path / "map.json")
    assert convert(screen, source, tmp_path / "v1", "adam", *options)["complete"]
    names = {"matrix": "tower/w", "matrix/Adam": "tower/w/Adam", "matrix/Adam_1": "odd"}
    names["beta1_power"] = "b1"
    expected = {names.get(n, n): value for n, value in tensors(tmp_path / "plain").items()}
    del expected["global_step"]
    assert_equal(tensors(tmp_path / "v1"), expected)


def test_the_state_of_another_optimizer_needs_partial(tmp_path, screen):
    keras = trained_bridged("adam", "optimizer_v2")
    source = saved(tmp_path / "keras", keras.optimizer, keras.variables)
    result = convert(screen, source, tmp_path / "v1", "momentum", code=1)
    assert not result["written"] and not (tmp_path / "v1.index").exists()
    assert {each["name"] for each in result["missing_in_source"]} == {
        f"{name}, slot momentum" for name in keras.variables
    }
    left = {f"{name}, slot {slot}" for name in keras.variables for slot in "mv"}
    left |= {"beta1_power", "beta2_power"}
    assert {each["name"] for each in result["left_in_source"]} >= left
    code, output, errors = screen.run(
        "convert", source, tmp_path / "v1", "--optimizer", "of_a_user:momentum"
    )
    assert (code, errors) == (1, "")
    assert "matrix, slot m" in output and "Nothing was written." in output
    result = convert(screen, source, tmp_path / "v1", "momentum", "--partial", code=1)
    assert result["written"]
    assert set(tensors(tmp_path / "v1")) == set(keras.variables) | {"global_step"}


@pytest.mark.parametrize(
    ["options", "words"],
    [
        ([], "contains the slots m, v. Pass --optimizer"),
        (["--optimizer", "of_a_user:other_adam"], "beta_1=0.9, and the v1 optimizer has 0.8"),
        (["--optimizer", "of_a_user:not_one"], "must be a tf.compat.v1.train.Optimizer"),
        (["--to", "adagrad-decay-v2"], "is object-based"),
    ],
)
def test_bad_options_are_refused(tmp_path, screen, options, words):
    optimizer = OWN.Adam(0.01)
    source = saved(tmp_path / "keras", optimizer, trained_by_keras(optimizer))
    result = screen.refused("convert", source, tmp_path / "v1", *options)
    assert words.split(" be ")[-1] in result
    assert not (tmp_path / "v1.index").exists()


def test_the_momentum_of_keras_sgd_is_refused(tmp_path, screen):
    optimizer = OWN.SGD(0.1, momentum=0.9)
    source = saved(tmp_path / "keras", optimizer, trained_by_keras(optimizer))
    words = ("convert", source, tmp_path / "v1", "--optimizer", "of_a_user:momentum")
    assert "contains the learning rate" in screen.refused(*words)


def test_optimizers_with_numbered_variables_are_refused(tmp_path, screen):
    has_newer = NEW is not None and not hasattr(NEW.Adam, "get_slot_names")
    if not has_newer and not training.KERAS_3:
        assert issubclass(KERAS.optimizers.Adam, versions.optimizer_v2())
        return
    optimizer = (NEW or versions.keras_3().optimizers).Adam(0.01)
    variable = training.keras_variables(
        training.problem(), "keras3" if NEW is None else "optimizer_v2", 1
    )["matrix"]
    optimizer.build([variable])
    source = saved(tmp_path / "keras", optimizer, {"matrix": variable})
    words = ("convert", source, tmp_path / "v1", "--optimizer", "of_a_user:adam")
    assert "compat.from_plain_keras" in screen.refused(*words)
    result = screen.json("inspect", source)
    assert result["optimizers"][0]["label"].startswith("Keras' own")


@pytest.mark.parametrize("api", training.APIS)
def test_inspect_shows_a_bridged_optimizer(tmp_path, screen, api):
    keras = trained_bridged("decay_v2", api)
    source = saved(tmp_path / "keras", keras.optimizer, keras.variables)
    result = screen.json("inspect", source)
    assert (result["kind"], result["step"]) == ("object-based", BEFORE)
    assert result["optimizers"][0]["label"] == (
        "made by to_keras, or of v1: like AdagradDecay, V2 layout"
    )
    assert {each["name"] for each in result["variables"]} == set(keras.variables)
    for each in result["variables"]:
        assert [slot["role"] for slot in each["slots"]] == [
            "accumulator",
            "accumulator_decay_power",
        ]
    assert result["tensors"] == len(tensors(source)) - 1  # does not count the object graph


@pytest.mark.parametrize(
    ["own", "label"],
    [
        (lambda: OWN.Adam(0.01), "Adam, Adamax or Nadam"),
        (lambda: OWN.SGD(0.1, momentum=0.9), "SGD with momentum"),
        (lambda: OWN.SGD(0.1), ", without slots, like SGD"),
        (lambda: OWN.RMSprop(0.1, centered=True), "centered RMSprop"),
    ],
)
def test_inspect_shows_keras_2_optimizers(tmp_path, screen, own, label):
    optimizer = own()
    source = saved(tmp_path / "keras", optimizer, trained_by_keras(optimizer))
    result = screen.json("inspect", source)
    assert result["optimizers"][0]["label"] in ("Keras' own " + label, "Keras' own" + label)
    code, output, _ = screen.run("inspect", source)
    assert code == 0 and "of the object optimizer" in output
