"""Tests the causes of differences: implementations in NumPy that are wrong in known ways."""

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded import Record, RecordError, state_files
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.proofs import causes
from legacy_opt.recorded.proofs.plain import plain
from legacy_opt.recorded.proofs.proof import End, Proof, cast
from legacy_opt.recorded.proofs.reference import fresh, is_fresh, run, with_bars, with_ends
from legacy_opt.recorded.state_files import state_of
from tests.recorded import references
from tests.recorded.written_rules import RMSPROP

MOMENTUM = recorded.load("MomentumOptimizer")


def trained(update, slots=1, start=0.0, dtype="float64", given=None):
    """Returns a function that trains with `update(g, w, slots, t, hyper, name)`."""

    def train(proof):
        w = {name: each.astype(dtype) for name, each in proof.start.variables.items()}
        s = {name: np.full((slots, *each.shape), start, dtype) for name, each in w.items()}
        for name in s if given else ():
            s[name][0] = given[name]["momentum"]
        found = {}
        for t, (gradients, hyper) in enumerate(zip(proof.gradients, proof.hyperparameters), 1):
            for name, g in gradients.items():
                if isinstance(g, tuple):
                    for row, values in zip(*g):
                        update(values, w[name][row], s[name][:, row], t, hyper, name)
                else:
                    update(g.astype(dtype), w[name], s[name], t, hyper, name)
            found[t] = {name: each.copy() for name, each in w.items()}
        return found

    return train


def cause(record, train, is_wide=True, rows=False, **options):
    proof = proofs.draw(record, rows=rows)
    return causes.find(proof, train(proof), is_wide, train, **options)


def momentum(g, w, s, t, hyper, name):
    s[0] = hyper["momentum"] * s[0] + g
    w -= hyper["learning_rate"] * s[0]


def nesterov(g, w, s, t, hyper, name):
    s[0] = hyper["momentum"] * s[0] + g
    w -= hyper["learning_rate"] * (hyper["momentum"] * s[0] + g)


def old_value(g, w, s, t, hyper, name):
    w -= hyper["learning_rate"] * s[0]
    s[0] = hyper["momentum"] * s[0] + g


def rate_inside(g, w, s, t, hyper, name):
    s[0] = hyper["momentum"] * s[0] + hyper["learning_rate"] * g
    w -= s[0]


def dampened(g, w, s, t, hyper, name):
    s[0] = g if t == 1 else hyper["momentum"] * s[0] + 0.75 * g
    w -= hyper["learning_rate"] * s[0]


def coupled(g, w, s, t, hyper, name):
    momentum(g + 0.125 * w, w, s, t, hyper, name)


def gradient_alone(g, w, s, t, hyper, name):
    w -= hyper["learning_rate"] * g


def epsilon_inside(g, w, s, t, hyper, name):
    s[0] = hyper["decay"] * s[0] + (1 - hyper["decay"]) * g * g
    w -= hyper["learning_rate"] * g / np.sqrt(s[0] + hyper["epsilon"])


def adam(g, w, s, t, hyper, name):
    """Corrects the bias before epsilon is added."""
    b1, b2 = hyper["beta1"], hyper["beta2"]
    s[0] = b1 * s[0] + (1 - b1) * g
    s[1] = b2 * s[1] + (1 - b2) * g * g
    root = np.sqrt(s[1] / (1 - b2**t)) + hyper["epsilon"]
    w -= hyper["learning_rate"] * s[0] / (1 - b1**t) / root


@pytest.mark.one_lane
@pytest.mark.parametrize(
    ("record", "train", "text"),
    [
        (MOMENTUM, trained(nesterov), "Nesterov: "),
        (MOMENTUM, trained(old_value), "the old momentum, from before the step"),
        (MOMENTUM, trained(rate_inside), "learning_rate multiplies gradient in old momentum"),
        (
            MOMENTUM,
            trained(dampened),
            "from the second step on, the gradient is multiplied by 0.75",
        ),
        (MOMENTUM, trained(coupled), "weight decay by 0.125 is added to the gradient (L2)"),
        (MOMENTUM, trained(momentum, start=1.0), "momentum starts at 1"),
        (MOMENTUM, trained(gradient_alone), "it computes the rule of GradientDescentOptimizer"),
        (RMSPROP, trained(epsilon_inside), "sqrt(mean + epsilon) instead of sqrt(mean) + epsilon"),
        (MOMENTUM, trained(nesterov, start=1.0), "momentum starts at 1; and Nesterov: "),
        (
            recorded.load("AdamOptimizer"),
            trained(adam, slots=2),
            "epsilon is added after the bias correction, as in PyTorch",
        ),
    ],
)
def test_a_cause_is_named(record, train, text):
    assert text in cause(record, train, constants=[0.125, 0.25, 0.75])


@pytest.mark.one_lane
def test_causes_of_rows():
    each = "of rows of equal ids, each is an update"
    assert cause(MOMENTUM, trained(momentum), rows=True) == each


@pytest.mark.one_lane
def test_float32_alone():
    train = trained(nesterov, dtype="float32")
    assert cause(MOMENTUM, train, is_wide=False).startswith("Nesterov: ")


@pytest.mark.one_lane
def test_a_recorded_training():
    """It starts with warm slots, and its numbers are ordinary ones."""
    values = {"learning_rate": 0.01, "momentum": 0.9}
    drawn = proofs.draw(MOMENTUM, steps=8, hyperparameters=values)
    optimizer = NumpyOptimizer(MOMENTUM, cast(drawn.start.variables, "float32"), **values)
    for gradients in drawn.gradients[:4]:
        optimizer.step(gradients)
    start = state_files.state_of(optimizer)
    proof = Proof(start, drawn.hyperparameters[4:], drawn.gradients[4:], {})
    proof = with_ends(proof, range(1, 5))

    def train(other):
        slots = other.start.slots if other.start.global_step else None
        return trained(nesterov, given=slots)(other)

    assert causes.find(proof, train(proof), True, train).startswith("Nesterov: ")


def of_one_variable(g, w, s, t, hyper, name):
    (nesterov if name == "b" else momentum)(g, w, s, t, hyper, name)


def of_few_steps(g, w, s, t, hyper, name):
    (nesterov if t < 10 else momentum)(g, w, s, t, hyper, name)


def of_one_rate(g, w, s, t, hyper, name):
    is_first = hyper["learning_rate"] in (2.0**-6, 2.0**-7)
    (nesterov if is_first else momentum)(g, w, s, t, hyper, name)


def far(g, w, s, t, hyper, name):
    s[0] = np.tanh(hyper["momentum"] * s[0] + np.cbrt(g))
    w -= hyper["learning_rate"] * s[0] / (1 + np.abs(w)) ** 1.5


@pytest.mark.one_lane
@pytest.mark.parametrize("update", [momentum, of_one_variable, of_few_steps, of_one_rate, far])
def test_nothing_is_said_without_a_confirmed_cause(update, monkeypatch):
    monkeypatch.setattr(causes, "_WORK", 30_000)
    assert cause(MOMENTUM, trained(update)) == ""


@pytest.mark.one_lane
def test_a_second_training_that_fails_confirms_nothing():
    found = []

    def train(proof):
        if found:
            raise RecordError("no second training")
        found.append(proof)
        return trained(nesterov)(proof)

    assert cause(MOMENTUM, train) == ""


def names():
    for name in recorded.catalogue():
        for group in recorded.load(name).groups:
            for rows, program in ((False, group.dense), (True, group.sparse)):
                if not isinstance(program, str):
                    yield name, rows


@pytest.mark.parametrize(("name", "rows"), sorted(set(names())))
def test_the_plain_form_is_the_same_rule(name, rows):
    record: Record = recorded.load(name)
    proof = proofs.draw(record, steps=3, rows=rows)
    found = dict(enumerate(run(proof, plain(record)), 1))
    # Constants such as 0.1 are not rounded to float32.
    assert proofs.judge(proof.ends, found, found).wide.ratio < 0.5


@pytest.mark.parametrize("warm", [False, True])
def test_dense_and_sparse_gradients_of_one_recorded_training(warm):
    """Both parts of the rule must be changed in the same way, and first values are edited."""
    record = recorded.load("AdagradOptimizer")
    parts = [references.trained(record, 4 * warm, rows=rows, steps=6) for rows in (False, True)]
    start = parts[0].start
    for part in parts[1:]:
        start.variables.update(part.start.variables)
        start.slots.update(part.start.slots)
    proof = parts[0]._replace(
        start=start,
        gradients=[{**one, **other} for one, other in zip(*(x.gradients for x in parts))],
        ends={
            step: End({**parts[0].ends[step].values, **parts[1].ends[step].values}, {}, {})
            for step in parts[0].ends
        },
        last=None,
    )
    proof = with_bars(proof)
    wrong = record.with_starts({"accumulator": 0.25})

    def train(other):
        if is_fresh(other):
            other = other._replace(start=other.start._replace(record=wrong))
            other = other._replace(start=state_of(fresh(other)))
        return dict(enumerate(run(other), start=1))

    cause = causes.find(proof, train(proof), False, train, [0.25])
    assert cause == ("" if warm else "accumulator starts at 0.25")
