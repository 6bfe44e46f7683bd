"""Tests replays with functions of NumPy; tests/recorded has those of other libraries."""

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

    def wide_of_float32(variables, hyperparameters):
        narrow = {name: array.astype("float32") for name, array in variables.items()}
        train = momentum(narrow, hyperparameters, scale=lambda dtype: dtype.type(1 + 2**-23))

        def step(gradients, hyperparameters):
            train({name: x.astype("float32") for name, x in gradients.items()}, hyperparameters)
            for name, array in narrow.items():
                variables[name][...] = array

        return step

    def keeps_the_gradient(variables, hyperparameters):
        slots = {}

        def step(gradients, hyperparameters):
            rate, mu = (hyperparameters[each] for each in names)
            for name, gradient in gradients.items():
                first = name not in slots
                slots[name] = gradient if first else mu * slots[name] + gradient
                variables[name] -= rate * slots[name]

        return step

    def exits(variables, hyperparameters):
        raise GeneratorExit("no\\nmore")

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


def test_a_class_that_computes_in_float32_is_judged_as_such(user):
    proof = proofs.draw(recorded.load("MomentumOptimizer"))
    assert replayed(proof, user("wide_of_float32"))[0] == "ROUNDING"


def test_a_state_that_is_the_gradient_itself(user):
    proof = proofs.draw(recorded.load("MomentumOptimizer"))
    assert replayed(proof, user("keeps_the_gradient")) == ("DIFFERS", 2, "w")


def test_what_cannot_be_judged(user):
    proof = proofs.draw(recorded.load("MomentumOptimizer"), steps=3)
    refused("it is random, or a training changes", replayed, proof, user("random"))
    refused("'w' must have the shape [12, 8], got [11, 8]", replayed, proof, user("other_shape"))
    refused("cannot be judged: GeneratorExit: no more", replayed, proof, user("exits"))
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


def test_rows_become_dense():
    from legacy_opt.recorded.proofs.proof import dense

    values = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    found = dense(Rows(np.array([2, 0, 2]), values), np.ones((3, 2), np.float32))
    assert found.tolist() == [[3, 4], [0, 0], [6, 8]]
