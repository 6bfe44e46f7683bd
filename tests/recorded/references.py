"""Trainings in NumPy, with which those of other libraries are compared, also without TensorFlow."""

import re

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.proofs.proof import End, Proof
from legacy_opt.recorded.records import Scalar

LAZY_ADAM = recorded.load("LazyAdamOptimizer")
WITHOUT_ROWS = LAZY_ADAM._replace(
    groups=(LAZY_ADAM.groups[0]._replace(sparse="no rows", ranks=(0, None)),)
)
OF_INTEGERS = LAZY_ADAM._replace(
    hyperparameters=dict(LAZY_ADAM.hyperparameters, learning_rate=Scalar("int32", 1))
)
EVERY_RULE = pytest.mark.parametrize("name", recorded.catalogue())


def refused(problem, function, *args, **kwargs):
    """Asserts that a call raises a ValueError with some words."""
    with pytest.raises(ValueError, match=re.escape(problem)):
        function(*args, **kwargs)


def through_a_file(folder, state):
    """Returns a state that was written and read."""
    state_files.write(folder / "state.npz", state)
    return state_files.read(folder / "state.npz")


def in_numpy(state, **hyperparameters):
    """Returns an optimizer that goes on with a state, and the weights that it trains."""
    weights = {name: state.variables[name].copy() for name in state.slots}
    optimizer = NumpyOptimizer(state.record, weights, **hyperparameters)
    state_files.load_into(optimizer, state)
    return optimizer, weights


def with_two_rates():
    """Returns a record whose programs for "w" and "b" have the same C source, but other scalars."""
    record = recorded.load("GradientDescentOptimizer")
    (group,), rate = record.groups, record.hyperparameters["learning_rate"]

    def renamed(nodes):
        detail = ("scalar", "bias_rate")
        return tuple(
            node._replace(detail=detail) if node.detail == ("scalar", "learning_rate") else node
            for node in nodes
        )

    def with_other_rate(program):
        return program._replace(nodes=renamed(program.nodes))

    biases = group._replace(
        variables={"b": (5,)},
        ranks=None,
        dense=with_other_rate(group.dense),
        sparse=with_other_rate(group.sparse),
    )
    nodes, results = record.before
    last = len(nodes)
    before = record.before._replace(
        nodes=(*nodes, renamed([nodes[results["learning_rate"]]])[0]),
        results={**results, "bias_rate": last},
    )
    return record._replace(
        hyperparameters={"bias_rate": rate._replace(value=0.75), "learning_rate": rate},
        before=before,
        groups=(group._replace(variables={"w": (5,)}, ranks=None), biases),
    )


def continued(name):
    """Trains a recorded optimizer 3000 steps, and then 100.

    Optimizers that count their steps begin at step 20,000, where RectifiedAdam's factor is 1.

    Returns:
      The state after 3000 steps; the arguments that name its momentum, if there is one; the
      gradients of the last steps; a function that asserts that weights are those after all steps.
    """
    draw, record = np.random.RandomState(0), recorded.load(name)
    momentum = {"momentum": 0.9} if "momentum" in record.hyperparameters else {}
    weights = {"w": draw.randn(4, 3).astype("f4")}
    optimizer = NumpyOptimizer(record, weights, **momentum)
    if "step" in optimizer.state.shared:
        optimizer.state.shared["step"] = np.float64(20_000)
    gradients = [draw.randn(4, 3).astype("f4") for _ in range(3100)]
    for gradient in gradients[:3000]:
        optimizer.step({"w": gradient})
    state = state_files.state_of(optimizer)
    for gradient in gradients[3000:]:
        optimizer.step({"w": gradient})

    def check(found):
        moved = np.abs(weights["w"] - state.variables["w"]).max()
        assert np.abs(found - weights["w"]).max() < 1e-4 * moved

    return state, momentum, gradients[3000:], check


def new_state(name, steps=0, scale=1.0):
    """Returns the state of a recorded optimizer after some steps with gradients of this scale."""
    draw, weights = np.random.RandomState(0), {"w": np.zeros((4, 3), np.float32)}
    optimizer = NumpyOptimizer(recorded.load(name), weights)
    for _ in range(steps):
        optimizer.step({"w": (scale * draw.randn(4, 3)).astype("f4")})
    return state_files.state_of(optimizer)


def check_grades(grade_of):
    """Asserts that the worst case decides on a grade: small gradients, or rates that fall."""
    late = new_state("AdamOptimizer", 3000)
    for scale in (1.0, 1e-6, 1e-7):
        refused("with gradients of ", grade_of, new_state("AdamOptimizer", 10, scale))
    assert "with gradients of 1e-07)" in str(grade_of(late)), grade_of(late)
    refused("and a falling rate", grade_of, new_state("AdamWOptimizer", 3000))
    unusual = new_state("AdadeltaOptimizer", 100, 1e-3)
    assert grade_of(unusual).name == "exact" and grade_of(unusual).case


def with_other_hyperparameters(name):
    """Trains a rule of the catalogue with other values of all hyperparameters.

    Returns:
      Its record, the hyperparameters, the gradients, and the weights after them.
    """
    draw, record = np.random.RandomState(0), recorded.load(name)
    values = [0.5, 0.625, 0.375, 0.75, 0.875]
    hyper = {each: values[i % 5] for i, each in enumerate(sorted(record.hyperparameters))}
    if "learning_rate_power" in hyper:
        hyper["learning_rate_power"] = -0.625
    gradients = [draw.randn(4, 3).astype("f4") for _ in range(4)]
    weights = {"w": np.ones((4, 3), "f4")}
    optimizer = NumpyOptimizer(record, weights, **hyper)
    for gradient in gradients:
        optimizer.step({"w": gradient})
    return record, hyper, gradients, weights["w"]


def trained(record, before=4, steps=3, rows=False, missing=False, seed=0, new_names=None):
    """Returns a proof of a training's later steps, as a recorder makes it.

    With `missing`, the first two variables have no gradient in some steps. `new_names` is a dict.
    """
    drawn = proofs.draw(record, seed, steps=before + steps, rows=rows)
    names = {name: (new_names or {}).get(name, name) for name in drawn.start.variables}
    variables = {new: drawn.start.variables[name].copy() for name, new in names.items()}
    optimizer = NumpyOptimizer(record, variables, **drawn.hyperparameters[0])
    ends, gradients, start = {}, [], None
    for step, values in enumerate(drawn.hyperparameters):
        absent = [*names][step % 2] if missing and step % 3 else None
        found = drawn.gradients[step].items()
        gradients.append({names[name]: x for name, x in found if name != absent})
        if step == before:
            start = state_files.state_of(optimizer)
        optimizer.hyperparameters.update(values)
        optimizer.step(gradients[step])
        if step >= before:
            values = {name: array.copy() for name, array in variables.items()}
            ends[step - before + 1] = End(values, {}, {})
    last = state_files.state_of(optimizer)
    return Proof(start, drawn.hyperparameters[before:], gradients[before:], ends, last=last)


def replayed(proof, target, **mapping):
    """Returns the verdict of a replay: its name, step and variable."""
    verdict = proofs.replay(proof, proofs.find(target, mapping), cause=False).verdict
    return (verdict.name, *verdict.place[1:])
