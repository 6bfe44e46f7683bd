"""Tests of load_v1_checkpoint with scopes, partitioned variables and names of TF1 graphs."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import load_v1_checkpoint, save_v1_checkpoint, to_keras
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.plain_reader import PlainCheckpoint
from tests.support.checkpoints.v1_checkpoint_cases import (
    END,
    PARTS,
    RENAMED,
    SCOPES,
    adam,
    assert_goes_on,
    momentum,
    moved,
    round_trip,
    trained_in_parts,
    variable_scope,
)
from tests.support.checkpoints.v1_checkpoints import (
    APIS,
    BEFORE,
    EVERY_API,
    KerasTraining,
    assert_equal,
    assert_same_steps,
    continued_from,
    continued_in_v1,
    problem,
    same,
    tensors,
    trained_in_v1,
    v1_training,
    write_tensors,
)
from tests.support.keras.keras_cases import CASES

v1 = tf.compat.v1
ONE = np.float32([1])


# Scopes.


@pytest.mark.in_turn(scope=list(SCOPES), name=["Adam", "AdagradDecay", "Momentum"], api=APIS)
def test_scopes_around_the_optimizer_are_found(scope, name, api, tmp_path):
    options = {"scope": SCOPES[scope]}
    round_trip(tmp_path / "model", problem(), CASES[name].make, api, options)
    names = set(tensors(tmp_path / "model"))
    slot = "table/" + CASES[name].optimizer.__name__.replace("Optimizer", "")
    assert ("OptimizeLoss/" + slot in names) == (scope != "name scope")
    if name == "Adam":
        assert "beta1_power" not in names


@EVERY_API
def test_variables_in_different_scopes(api, tmp_path):
    base = problem(("matrix", "table", "cube"))
    renamed = {"matrix": "deep/input/kernel", "table": "OptimizeLoss/table", "cube": "a/b/c/cube"}
    rename = lambda by_name: {renamed[name]: by_name[name] for name in by_name}  # noqa: E731
    moved = base._replace(
        values=rename(base.values),
        gradients=[rename(step) for step in base.gradients],
        sparse=tuple(renamed[name] for name in base.sparse),
    )
    # This test uses tf.Variable, because a keras.Variable cannot have a slash in its name.
    variables = {name: tf.Variable(value * 0, name=name) for name, value in moved.values.items()}
    path = trained_in_v1(tmp_path / "model", moved, adam, scope=variable_scope)
    expected = continued_in_v1(path, moved, adam, scope=variable_scope)
    training = KerasTraining(moved, adam, api, variables)
    assert_goes_on(path, training, expected)


# A name scope has no effect on the names of slots.
@pytest.mark.in_turn(scope=[each for each in SCOPES if each != "name scope"], api=APIS)
def test_a_global_step_in_the_scope_of_slots_is_found(scope, api, tmp_path):
    options = {"scope": SCOPES[scope], "step": "OptimizeLoss/global_step"}
    make = CASES["AdagradDecay"].make
    round_trip(tmp_path / "model", problem(), make, api, options)
    assert "global_step" not in tensors(tmp_path / "model")


@pytest.mark.parametrize("scope", ["train/", "other/"])
@EVERY_API
def test_the_global_step_of_another_network_is_not_taken(scope, api, tmp_path):
    powers = {"train/beta1_power": np.float32(0.9), "train/beta2_power": np.float32(0.99)}
    slots = {"w/Adam": ONE, "w/Adam_1": ONE, "other/q": ONE}
    values = {"w": ONE, scope + "global_step": np.int64(77), **slots, **powers}
    path = write_tensors(tmp_path / "model", values)
    variables = {"w": tf.Variable(ONE)}
    arguments = path, variables, to_keras(v1.train.AdamOptimizer(0.1), api=api)
    report = str(load_v1_checkpoint(*arguments, ignore=["other/"]))
    assert int(arguments[2].iterations) == (77 if scope == "train/" else 0)
    assert ("The checkpoint has no global step" in report) == (scope == "other/")
    report = str(load_v1_checkpoint(*arguments, strict=False))
    assert ("any of 'other/global_step', choose it with name_map" in report) == (scope == "other/")
    arguments[2].iterations.assign(5)
    save_v1_checkpoint(tmp_path / "new", *arguments[1:], like=path)
    assert tensors(tmp_path / "new")[scope + "global_step"] == (5 if scope == "train/" else 77)
    load_v1_checkpoint(*arguments, {"global_step": scope + "global_step"}, ignore=["other/q"])
    assert int(arguments[2].iterations) == 77


@EVERY_API
def test_of_several_global_steps_the_name_map_chooses(api, tmp_path):
    steps = {"a/global_step": np.int64(3), "b/global_step": np.int64(4)}
    path = write_tensors(tmp_path / "model", {"w": ONE, "w/Momentum": ONE, **steps})
    variables = {"w": tf.Variable(ONE)}
    optimizer = to_keras(v1.train.MomentumOptimizer(0.1, 0.9), api=api)
    report = load_v1_checkpoint(path, variables, optimizer, strict=False)
    assert "any of 'a/global_step', 'b/global_step'" in str(report)
    load_v1_checkpoint(path, variables, optimizer, {"global_step": "b/global_step"}, ignore=["a/"])
    assert int(optimizer.iterations) == 4


# Partitioned variables.


# The expected values come from a Session with unpartitioned variables. With partitioned variables,
# a Session would round some values differently from Keras (measured difference: 6e-8).
@pytest.mark.in_turn(name=["Adam", "AdagradDecay", "AdagradDecayV2", "RMSProp momentum"], api=APIS)
def test_partitioned_variables_saved_as_whole_tensors(name, api, tmp_path):
    make = CASES[name].make
    path, state = trained_in_parts(tmp_path / "model", problem(), make)
    assert tensors(path)["table"].shape == (9, 3)
    expected = continued_from(state, problem(), make)
    assert_goes_on(path, KerasTraining(problem(), make, api), expected)


@pytest.mark.in_turn(
    scope=[None, "variable scope", "name scope"],
    name=["Adam", "AdagradDecay", "AdagradDecayV2"],
    api=APIS,
)
def test_partitioned_variables_saved_part_by_part(scope, name, api, tmp_path):
    make = CASES[name].make
    options = {"scope": SCOPES[scope]} if scope else {}
    path, state = trained_in_parts(tmp_path / "model", problem(), make, True, **options)
    assert "table/part_0" in tensors(path)
    assert not {"table", f"table/part_{PARTS}"} & set(tensors(path))
    expected = continued_from(state, problem(), make)
    report = assert_goes_on(path, KerasTraining(problem(), make, api), expected)
    assert "table/part_0" in str(report) and "3 parts" in str(report)


# {scope of the optimizer: prefix of slot names in the checkpoint}. In the graph, the slot's name is
# "<scope>/matrix/part_0/Adam". For the checkpoint, TensorFlow removes the first
# len("matrix/part_0/") characters of this name, and prepends "matrix/".
MANGLED = {
    "OptimizeLoss": "matrix/atrix/part_0/",
    "a": "matrix/0/",
    "a/long/one/of/parts": "matrix/parts/matrix/part_0/",
}


@pytest.mark.in_turn(scope=list(MANGLED), name=["AdagradDecay", "Adam"], parts=[3, 1], api=APIS)
def test_slots_with_mangled_names(name, parts, scope, api, tmp_path):
    """If the optimizer is in a scope, TensorFlow mangles slot names of partitioned variables."""
    make = CASES[name].make
    options = {"scope": lambda: v1.variable_scope(scope)}
    path, state = trained_in_parts(tmp_path / "model", problem(), make, number=parts, **options)
    names = {each for each, _ in tf.train.list_variables(path)}
    assert MANGLED[scope] + name in names
    if parts > 1:
        with pytest.raises(CheckpointError, match="some parts of .* optimizer is in a scope"):
            PlainCheckpoint(path)
    expected = continued_from(state, problem(), make)
    assert_goes_on(path, KerasTraining(problem(), make, api), expected)


def test_a_missing_part_is_refused(tmp_path):
    path, _ = trained_in_parts(tmp_path / "model", problem(), momentum, True)
    arrays = tensors(path)
    del arrays["table/part_1"]
    path = write_tensors(tmp_path / "other", arrays)
    training = KerasTraining(problem(), momentum, APIS[0], start=1)
    before = training.arrays()
    with pytest.raises(ValueError, match="table"):
        load_v1_checkpoint(path, training.variables, training.optimizer)
    assert same(training.arrays(), before)


# Names.


@EVERY_API
def test_the_name_of_the_keras_optimizer_does_not_matter(api, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    expected = continued_in_v1(path, problem(), adam)
    training = KerasTraining(problem(), adam, api, name="something_else")
    assert_goes_on(path, training, expected)


@EVERY_API
def test_the_name_of_the_v1_optimizer_is_used(api, tmp_path):
    def named(step):
        return adam(step, name="Generator")

    round_trip(tmp_path / "model", problem(), named, api)
    assert "table/Generator_1" in tensors(tmp_path / "model")


@EVERY_API
def test_two_optimizers_of_one_graph(api, tmp_path):
    """A GAN may have two Adam optimizers. The second Adam has beta1_power_1 and beta2_power_1."""

    def of_discriminator(step):
        return v1.train.AdamOptimizer(0.02, 0.5, 0.9, 1e-3)

    whole = problem(("matrix", "table", "cube"))
    path = trained_in_v1(tmp_path / "gan", whole, adam, only=("matrix",), other=of_discriminator)
    arrays = tensors(path)
    assert not np.array_equal(arrays["beta1_power"], arrays["beta1_power_1"])
    names = {"beta1_power": "beta1_power_1", "beta2_power": "beta2_power_1"}
    for make, chosen, mapped, rest in [
        (adam, ("matrix",), None, ["table.*", "cube.*", "beta._power_1"]),
        (of_discriminator, ("table", "cube"), names, ["matrix.*", "beta._power"]),
    ]:
        part = problem(chosen)
        with v1_training(part, make) as session:
            own = {variable.op.name: variable for variable in v1.global_variables()}
            session.restore(path, {(mapped or {}).get(name, name): own[name] for name in own})
            expected = session.state(), session.train(BEFORE, END), session.state()
        training = KerasTraining(part, make, api)
        assert_goes_on(path, training, expected, name_map=mapped, ignore=rest)


@pytest.mark.in_turn(kind=["dict", "callable", "variables by v1 names"], api=APIS)
def test_names_of_variables_are_mapped(kind, api, tmp_path):
    with v1_training(problem(), adam) as old:
        old.train(0, BEFORE)
        saved = {moved(name): variable for name, variable in old.by_name().items()}
        path = old.save(tmp_path / "model", saved)
        expected = old.state(), old.train(BEFORE, END), old.state()
    training = KerasTraining(problem(), adam, api)
    if kind == "variables by v1 names":
        given = {RENAMED[name]: variable for name, variable in training.variables.items()}
        names = None
    else:
        given = list(training.variables.values())
        names = RENAMED if kind == "dict" else lambda name: RENAMED.get(name, name)
    report = load_v1_checkpoint(path, given, training.optimizer, name_map=names)
    assert report.complete
    assert_equal(training.state(), expected[0])
    assert_same_steps(training.train(BEFORE, END), expected[1])
    assert_equal(training.state(), expected[2])


@EVERY_API
def test_the_name_of_a_slot_is_mapped(api, tmp_path):
    with v1_training(problem(), adam) as old:
        old.train(0, BEFORE)
        saved = old.by_name()
        saved["odd/name"] = saved.pop("table/Adam_1")
        path = old.save(tmp_path / "model", saved)
        expected = old.state(), old.train(BEFORE, END), old.state()
    training = KerasTraining(problem(), adam, api)
    assert_goes_on(path, training, expected, name_map={"table/Adam_1": "odd/name"})
