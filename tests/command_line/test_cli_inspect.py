"""Tests of the commands `legacy-opt inspect` and `legacy-opt compare`."""

import functools
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support.checkpoints import v1_checkpoints as training
from tests.support.checkpoints.v1_checkpoints import tensors
from tests.support.processes.command_line import ROOT, forget_module

DATA = ROOT / "tests" / "data"


def test_a_recorded_checkpoint_of_adam(screen):
    code, output, errors = screen.run("inspect", DATA / "adam_tf115")
    assert (code, errors) == (0, "")
    assert re.search(r"^optimizer: Adam \(slots Adam, \d+ variables?\)$", output, re.M)
    assert "shared by all" in output and "the step" in output and "\x1b" not in output
    assert all(line == line.rstrip() for line in output.splitlines())


def test_the_page_shows_the_printed_table(screen, monkeypatch):
    monkeypatch.chdir(DATA)
    _, output, _ = screen.run("inspect", "adam_tf115")
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert f"$ legacy-opt inspect adam_tf115\n{output}```\n" in page


@pytest.mark.parametrize(
    ["name", "label", "scope", "format"],
    [
        ("adam_tf115", "Adam", "", "V2"),
        ("adam_tf115_v1_format", "Adam", "", "V1"),
        ("optimize_loss_tf115", "Adam", "OptimizeLoss", "V2"),
    ],
)
def test_recorded_checkpoints(screen, name, label, scope, format):
    result = screen.json("inspect", DATA / name)
    assert (result["format"], result["kind"]) == (format, "name-based")
    (guess,) = result["optimizers"]
    assert (guess["label"], guess["scope"]) == (label, scope)
    arrays = tensors(DATA / name)
    assert result["tensors"] == len(arrays)
    assert result["numbers"] == sum(array.size for array in arrays.values())
    assert result["bytes"] == sum(array.nbytes for array in arrays.values())
    assert result["step"] == arrays[result["step_name"]]
    shapes = {each["name"]: each["shape"] for each in result["variables"]}
    shapes.update(
        (slot["name"], slot["shape"]) for each in result["variables"] for slot in each["slots"]
    )
    assert shapes == {
        name: list(array.shape)
        for name, array in arrays.items()
        if "_power" not in name and name != result["step_name"]
    }


@pytest.mark.parametrize(
    ["name", "words"], [("nothing", "no such checkpoint"), ("truncated", "is truncated")]
)
def test_bad_input(screen, name, words):
    assert words in screen.refused("inspect", DATA / name)


def test_slots_without_their_variables(tmp_path, screen):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.compat.v1.get_variable(f"w{i}", initializer=[1.0]) for i in range(5)]
        optimizer = tf.compat.v1.train.AdamOptimizer()
        optimizer.minimize(tf.add_n(variables))
        session.run(tf.compat.v1.global_variables_initializer())
        slots = [optimizer.get_slot(each, name) for each in variables for name in "mv"]
        for name, saved in (("slots", slots), ("variables", variables)):
            tf.compat.v1.train.Saver(saved).save(session, str(tmp_path / name))
    _, output, _ = screen.run("inspect", tmp_path / "slots")
    assert "lacks the variables of its slots, such as that of w0/Adam\n" in output
    _, output, _ = screen.run("inspect", tmp_path / "variables")
    assert "no slot variables were recognised" in output


USERS_MODULE = """
import tensorflow as tf
Base = tf.compat.v1.train.MomentumOptimizer
ready = Base(0.1, 0.9)
def make():
    print("output of the user's module")
    return Base(0.1, 0.9, use_nesterov=True)
class Different(Base):
    def __init__(self):
        super().__init__(0.1, 0.9)
    def _resource_apply_dense(self, grad, handle):
        factor = 1.5 if hasattr(self, "_driver") else 1.0
        return super()._resource_apply_dense(grad * factor, handle)
nothing = 3
def raises():
    raise KeyError("no rate")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "optimizers_of_a_user.py").write_text(USERS_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget_module("optimizers_of_a_user", monkeypatch)


@pytest.mark.keras2
@pytest.mark.parametrize("name", ["ready", "make"])
def test_compare_equal(screen, folder, name):
    words = ("compare", "optimizers_of_a_user:" + name, "--steps", "3", "--api", "optimizer_v2")
    result = screen.json(*words)
    assert (result["equal"], result["steps"], result["optimizer"]) == (True, 3, "MomentumOptimizer")
    assert result["tensorflow"] == tf.__version__
    code, output, errors = screen.run(*words)
    assert (code, errors, output.count("\n")) == (0, "", 1)
    assert "equal bit for bit: 3 steps" in output


def test_compare_different(screen, folder):
    result = screen.json("compare", "optimizers_of_a_user:Different", "--steps", "2", code=1)
    assert (result["equal"], result["step"], result["variable"]) == (False, 1, "kernel")
    assert result["difference"] > 0
    code, output, _ = screen.run("compare", "optimizers_of_a_user:Different", "--steps", "2")
    assert code == 1 and "different at step 1 of 2: kernel by up to" in output


@pytest.mark.parametrize(
    ["words", "message"],
    [
        (["optimizers_of_a_user:nothing"], "takes a tf.compat.v1.train.Optimizer"),
        (["optimizers_of_a_user:raises"], "KeyError: 'no rate' (optimizers_of_a_user.py, line"),
        (["no_such_module:make"], "No module named 'no_such_module'"),
        (["optimizers_of_a_user:ready", "--steps", "0"], "steps must be positive"),
        (["optimizers_of_a_user:ready", "--steps", "many"], "--steps: invalid int value"),
    ],
)
def test_compare_refuses_bad_input(screen, folder, words, message):
    assert message in screen.refused("compare", *words)


def test_compare_with_keras_3(screen, folder):
    if versions.keras_facts()["generation"] == 3:
        assert screen.json("compare", "optimizers_of_a_user:ready", "--api", "keras3")["equal"]
    else:
        words = ("compare", "optimizers_of_a_user:ready", "--api", "keras3")
        assert "Keras 3 is not installed" in screen.refused(*words)


@pytest.mark.parametrize("parts", [1, 3])
def test_slot_names_that_tensorflow_mangles(tmp_path, screen, parts):
    """If the optimizer is in a scope, TensorFlow saves the slots of partitions under wrong names.

    "OptimizeLoss/matrix/part_0/Adam" becomes "matrix/atrix/part_0/Adam": TensorFlow removes the
    first len("matrix/part_0/") characters, and prepends "matrix/".
    """
    problem = training.problem(("matrix", "table"))
    scope = functools.partial(tf.compat.v1.variable_scope, "OptimizeLoss")
    make = lambda step: tf.compat.v1.train.AdamOptimizer()  # noqa: E731
    with training.v1_training(problem, make, parts=parts, scope=scope) as run:
        run.train(0, 4)
        state, path = run.state(), run.save(str(tmp_path / "graph"))
    assert "matrix/atrix/part_0/Adam_1" in dict(tf.train.list_variables(path))
    found = screen.json("inspect", path)
    slots = {slot["name"]: slot["role"] for each in found["variables"] for slot in each["slots"]}
    # The slot names in the checkpoint lack the scope. `inspect` finds the scope in the names of
    # beta1_power and beta2_power, and prints slot names with this scope.
    expected = {
        f"OptimizeLoss/{variable}/{name}": (variable, role)
        for variable in ("matrix", "table")
        for name, role in (("Adam", "m"), ("Adam_1", "v"))
    }
    assert slots == {name: role for name, (_, role) in expected.items()}
    assert [each["label"] for each in found["optimizers"]] == ["Adam"]
    screen.json("convert", path, tmp_path / "whole")
    reader = tf.train.load_checkpoint(str(tmp_path / "whole"))
    for name, key in expected.items():
        assert np.array_equal(reader.get_tensor(name), state[key])
