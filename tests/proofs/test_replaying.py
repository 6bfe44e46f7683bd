"""Tests replays with functions of NumPy; tests/recorded has those of other libraries."""

import textwrap

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.proofs.arguments import arguments_of
from legacy_opt.recorded.numpy import Rows
from tests.recorded.references import refused, replayed, trained

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

    def rounds_otherwise(variables, hyperparameters):
        return momentum(variables, hyperparameters, scale=lambda dtype: dtype.type(1 + 2**-23))

    def slightly_off(variables, hyperparameters):
        return momentum(variables, hyperparameters, scale=lambda dtype: dtype.type(1 + 2**-17))

    def centered(variables, hyperparameters, variance=lambda v, m: v - m * m):
        slots = {name: [np.ones_like(x), np.ones_like(x)] for name, x in variables.items()}

        def step(gradients, hyperparameters):
            for name, g in gradients.items():
                v, m = slots[name]
                v += (g * g - v) * np.float32(0.1)
                m += (g - m) * np.float32(0.1)
                variables[name] -= g / np.sqrt(np.maximum(variance(v, m), 0) + np.float32(1e-6))

        return step

    def centered_otherwise(variables, hyperparameters):
        return centered(variables, hyperparameters, lambda v, m: (v**0.5 - m) * (v**0.5 + m))

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
    sound = proofs.replay(proof, proofs.find(user("in_float32")), cause=False)
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


@pytest.mark.parametrize("target", ["legacy-opt:numpy", "legacy-opt:native"])
@pytest.mark.parametrize("name", ["Adam", "AdagradDecay"])
def test_recorded_trainings(name, target):
    record = recorded.load(f"{name}Optimizer")
    for rows, before in ((False, 0), (True, 4)):
        proof = trained(record, before, rows=rows, missing=True)
        report = proofs.replay(proof, proofs.find(target), cause=False)
        assert report.verdict.name == "EQUAL" and report.notes == ()


def test_slots_after_the_last_step():
    proof, sound = trained(recorded.load("MomentumOptimizer")), proofs.find("legacy-opt:numpy")
    assert set(proofs.replay(proof, sound, cause=False).drift) == {
        *"wbc",
        *(f"{x}/momentum" for x in "wbc"),
    }

    def train(inputs, steps):
        *variables, slots = sound.train(inputs, steps)
        yield from variables
        yield {**slots, "c/momentum": slots["c/momentum"] * 1.01}

    verdict = proofs.replay(proof, sound._replace(train=train), cause=False).verdict
    assert (verdict.name, *verdict.place[1:]) == ("DIFFERS", 3, "c/momentum")


def without_rule(proof):
    groups = [each._replace(dense="unknown", sparse="unknown") for each in proof.record.groups]
    record = proof.record._replace(groups=tuple(groups))
    return proof._replace(start=proof.start._replace(record=record), last=None)


@pytest.mark.parametrize("rows", [False, True], ids=["dense", "rows"])
def test_without_a_rule_an_implementation_is_its_own_yardstick(user, rows):
    proof = without_rule(trained(recorded.load("MomentumOptimizer"), 0, steps=10, rows=rows))
    assert replayed(proof, user("momentum"))[0] == "EQUAL"
    assert replayed(proof, user("rounds_otherwise"))[0] == "ROUNDING"
    report = proofs.replay(proof, proofs.find(user("slightly_off")), cause=False)
    assert report.verdict.name == "DIFFERS" and report.verdict.error.step == 1
    why = "MomentumOptimizer was recorded without a rule: unknown; "
    own = "so the error bars are those of numpy:users_functions:"
    assert report.notes == (f"{why}{own}slightly_off itself",)


def test_without_a_rule_the_first_slots_are_unknown(user):
    proof = without_rule(trained(recorded.load("MomentumOptimizer"), 0, steps=2))
    slots = {name: {k: x + 1 for k, x in each.items()} for name, each in proof.start.slots.items()}
    proof = proof._replace(start=proof.start._replace(slots=slots))
    with pytest.raises(proofs.ProofError, match="without a rule: its first slots are unknown"):
        proofs.replay(proof, proofs.find(user("momentum")))


def test_the_yardstick_of_an_implementation_that_cancels(user):
    """Nearly constant gradients have a small variance, in which rounding is large."""
    proof = without_rule(trained(recorded.load("MomentumOptimizer"), 0, steps=8))
    random = np.random.RandomState(0)
    gradients = [
        {name: (1 + 1e-3 * random.randn(*x.shape)).astype("f4") for name, x in each.items()}
        for each in proof.gradients
    ]
    other, proof = proofs.find(user("centered_otherwise")), proof._replace(gradients=gradients)
    variables = {name: x.copy() for name, x in proof.start.variables.items()}
    copies = [{name: x.copy() for name, x in each.items()} for each in gradients]
    inputs = proof._replace(start=proof.start._replace(variables=variables), gradients=copies)
    found = other.train(inputs, other.arguments(proof).steps)
    ends = {i: proofs.End(values, {}, {}) for i, values in enumerate(found, start=1)}
    verdict = proofs.replay(
        proof._replace(ends=ends), proofs.find(user("centered")), cause=False
    ).verdict
    assert verdict.name == "ROUNDING"


def test_a_recorded_training_that_is_not_that_of_the_rule(user):
    proof = trained(recorded.load("MomentumOptimizer"), 0)
    ends = {
        i: x._replace(values={n: a * 3 for n, a in x.values.items()}) for i, x in proof.ends.items()
    }
    report = proofs.replay(proof._replace(ends=ends), proofs.find(user("momentum")), cause=False)
    assert report.verdict.name == "DIFFERS"
    problem = "the recorded training is not that of the rule of MomentumOptimizer: in step 1, "
    assert report.notes[0].startswith(problem)
    assert report.notes[1:] == ("the slots after the last step were not compared",)


@pytest.mark.parametrize("defect", ["slots lost", "a step off", "no slots of one variable"])
def test_wrong_starts(defect):
    proof = trained(recorded.load("AdamOptimizer"), before=5, steps=4)
    start, cold = proof.start, trained(recorded.load("AdamOptimizer"), before=0).start
    wrong = {
        "slots lost": start._replace(slots=cold.slots),
        "a step off": start._replace(shared={n: x * 0.875 for n, x in start.shared.items()}),
        "no slots of one variable": start._replace(slots={**start.slots, "c": cold.slots["c"]}),
    }[defect]
    sound = proofs.find("legacy-opt:numpy")
    target = sound._replace(train=lambda x, steps: sound.train(x._replace(start=wrong), steps))
    verdict = proofs.replay(proof, target, cause=False).verdict
    place = verdict.place.step, verdict.place.variable
    assert verdict.name == "DIFFERS" and place == (1, "c" if defect.startswith("no") else "w")


def test_what_cannot_be_judged(user):
    proof = proofs.draw(recorded.load("MomentumOptimizer"), steps=3)
    refused("it is random, or a training changes", replayed, proof, user("random"))
    refused("'w' must have the shape [12, 8], got [11, 8]", replayed, proof, user("other_shape"))
    refused("cannot be judged: GeneratorExit: no more", replayed, proof, user("exits"))
    problem = "it gets all hyperparameters"
    refused(problem, replayed, proof, user("momentum"), lr="learning_rate")
    refused(problem, replayed, proof, "legacy-opt:numpy", lr="learning_rate")
    later = proof._replace(start=proof.start._replace(global_step=7))
    refused("record from the first step of the optimizer", replayed, later, user("momentum"))


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


def test_arguments_of_a_recorded_constructor():
    def make(learning_rate, momentum, use_nesterov=False, names=()):
        pass

    recorded_arguments = {"learning_rate": 9.0, "use_nesterov": True, "names": ["a,b"]}
    proof = proofs.draw(recorded.load("MomentumOptimizer"), steps=1)
    proof = proof._replace(made={"arguments": recorded_arguments})
    (found,) = arguments_of(make, proof, {}).steps
    values = proof.hyperparameters[0]
    assert found == {**values, "use_nesterov": True, "names": ["a,b"]}
    (found,) = arguments_of(make, proof, {"use_nesterov": "False"}).steps
    assert not found["use_nesterov"]
