"""Tests replays with functions of NumPy; tests/recorded has those of other libraries."""

import math
import textwrap

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded.numpy import Rows
from tests.recorded.references import refused, replayed

pytestmark = pytest.mark.once  # does not need TensorFlow
MODULE = """
    import numpy as np
    from legacy_opt.recorded.numpy import Rows

    def momentum(variables, hyperparameters, late=0.0, scale=lambda dtype: 1):
        slots = {name: np.zeros_like(array) for name, array in variables.items()}

        def step(gradients, hyperparameters):
            for name, gradient in gradients.items():
                m, rows = slots[name], ...
                if isinstance(gradient, Rows):
                    rows, inverse = np.unique(gradient.ids, return_inverse=True)
                    summed = np.zeros((len(rows), *gradient.values.shape[1:]), m.dtype)
                    np.add.at(summed, inverse.reshape(-1), gradient.values)
                    gradient = summed
                rate, mu = (m.dtype.type(hyperparameters[each]) for each in names)
                m[rows] = mu * m[rows] + gradient
                variables[name][rows] -= rate * m[rows] * scale(m.dtype)
                gradient[...] = 7  # must not change the proof

        return step

    names = "learning_rate", "momentum"

    def nearly(variables, hyperparameters):
        return momentum(variables, hyperparameters, scale=lambda dtype: dtype.type(1 + 1e-9))

    def random(variables, hyperparameters):
        return momentum(variables, hyperparameters, scale=lambda dtype: np.random.rand())

    def in_float32(variables, hyperparameters):
        assert variables["w"].dtype == "float32", "no float64"
        return momentum(variables, hyperparameters, scale=lambda dtype: 0.5)

    def other_shape(variables, hyperparameters):
        def step(gradients, hyperparameters):
            variables["w"] = variables["w"][1:]

        return step
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    (tmp_path / "users_functions.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "no_module.py").write_text("import sys; sys.exit('a script')")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "numpy:users_functions:{}".format


@pytest.mark.parametrize("rows", [False, True], ids=["dense", "rows"])
def test_functions_of_numpy(user, rows):
    proof = proofs.draw(recorded.load("MomentumOptimizer"), rows=rows)
    before = proof.gradients[0]["table"].values.copy() if rows else proof.gradients[0]["w"].copy()
    assert replayed(proof, user("momentum"))[0] == "EQUAL"
    after = proof.gradients[0]["table"].values if rows else proof.gradients[0]["w"]
    assert np.array_equal(before, after)


def test_the_second_opinion_in_float64(user):
    """A relative difference of 1e-9 is nothing in float32, where the factor is 1."""
    proof = proofs.draw(recorded.load("MomentumOptimizer"))
    assert replayed(proof, user("nearly"))[0] == "EQUAL"
    sound = proofs.replay(proof, proofs.find(user("in_float32")))
    assert (sound.verdict.name, sound.verdict.wide) == ("DIFFERS", None)
    assert sound.notes == (
        "judged in float32 alone; in float64, it cannot be judged: AssertionError: no float64",
    )
    assert set(sound.versions) >= {"legacy_opt", "numpy"}


def test_what_cannot_be_judged(user):
    proof = proofs.draw(recorded.load("MomentumOptimizer"), steps=3)
    refused("it is random, or a training changes", replayed, proof, user("random"))
    refused("'w' must have the shape [12, 8], got [11, 8]", replayed, proof, user("other_shape"))
    problem = "it gets all hyperparameters"
    refused(problem, replayed, proof, user("momentum"), lr="learning_rate")
    refused(problem, replayed, proof, "legacy-opt:numpy", lr="learning_rate")
    later = proof._replace(start=proof.start._replace(global_step=7))
    refused("cannot be judged: the proof begins after step 7", replayed, later, "legacy-opt:numpy")


@pytest.mark.parametrize(
    "text", ["numpy", "numpy:momentum", "tensor:a:b", "legacy-opt:numpy-exact", "legacy-opt:", ""]
)
def test_unknown_targets(text):
    refused(f"there is no target {text!r}: a target is numpy:module:name", proofs.find, text)


def test_modules_that_cannot_be_imported(user):
    refused("ModuleNotFoundError: No module named 'absent'", proofs.find, "numpy:absent:f")
    refused("SystemExit: a script", proofs.find, "numpy:no_module:f")
    refused("AttributeError: ", proofs.find, user("absent"))


def test_constants_in_float64():
    """They are those that were written, not those that float32 has rounded."""

    def constants(name):
        record = recorded.load(name).in_dtype("float64")
        functions = [record.before, *(each for group in record.groups for each in group.programs)]
        nodes = [node for each in functions for node in each.nodes if node.operation == "Const"]
        slots = [slot.initial for group in record.groups for slot in group.slots.values()]
        return {node.detail for node in nodes}.union(slots)

    assert 0.1 in constants("AdagradOptimizer")
    assert math.e in constants("PowerSignOptimizer")
    assert constants("AdafactorOptimizer") >= {0.01, -0.8, 1 - 2.0**-24}


def test_rows_become_dense():
    from legacy_opt.recorded.proofs.proof import dense

    values = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    found = dense(Rows(np.array([2, 0, 2]), values), np.ones((3, 2), np.float32))
    assert found.tolist() == [[3, 4], [0, 0], [6, 8]]
