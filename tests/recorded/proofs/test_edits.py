"""Tests that edits of rules compute what they say, by loops in NumPy."""

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded.formulas import cast, maximum, sqrt, square
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs.edits import KINDS, edits
from legacy_opt.recorded.proofs.reference import run
from tests.recorded.written_rules import AMSGRAD, RMSPROP

MOMENTUM = recorded.load("MomentumOptimizer")


def loop(proof, update, slot=0.0, parts=lambda rows: [rows]):
    """Trains with `update(g, w, s, t, hyperparameters)`, which returns w and s, in float64."""
    ends = []
    w = {name: each.astype("float64") for name, each in proof.start.variables.items()}
    s = {name: np.full(each.shape, slot) for name, each in w.items()}
    for t, (gradients, hyper) in enumerate(zip(proof.gradients, proof.hyperparameters), start=1):
        for name, gradient in gradients.items():
            if not isinstance(gradient, Rows):
                w[name], s[name] = update(gradient.astype("float64"), w[name], s[name], t, hyper)
                continue
            for ids, values in parts(gradient):
                values = values.astype("float64")
                w[name][ids], s[name][ids] = update(values, w[name][ids], s[name][ids], t, hyper)
        ends.append({name: each.copy() for name, each in w.items()})
    return ends


def equal(proof, edit, ends):
    found = run(proof, edit.record, optimizer_class=edit.optimizer_class)
    return all(
        np.allclose(one[name], other[name], rtol=1e-12, atol=1e-15, equal_nan=True)
        for one, other in zip(found, ends)
        for name in other
    )


def momentum(g, w, s, t, hyper):
    s = hyper["momentum"] * s + g
    return w - hyper["learning_rate"] * s, s


def nesterov(g, w, s, t, hyper):
    s = hyper["momentum"] * s + g
    return w - hyper["learning_rate"] * (hyper["momentum"] * s + g), s


def old_momentum(g, w, s, t, hyper):
    return w - hyper["learning_rate"] * s, hyper["momentum"] * s + g


def unbiased_momentum(g, w, s, t, hyper):
    s = hyper["momentum"] * s + g
    return w - hyper["learning_rate"] * s / (1 - hyper["momentum"] ** t), s


def coupled_decay(g, w, s, t, hyper):
    return momentum(g + w / 32, w, s, t, hyper)


def rmsprop(g, w, s, t, hyper, root=lambda s, hyper: np.sqrt(s) + hyper["epsilon"]):
    s = hyper["decay"] * s + (1 - hyper["decay"]) * g * g
    return w - hyper["learning_rate"] * g / root(s, hyper), s


def epsilon_in_root(g, w, s, t, hyper):
    return rmsprop(g, w, s, t, hyper, lambda s, hyper: np.sqrt(s + hyper["epsilon"]))


def without_root(g, w, s, t, hyper):
    return rmsprop(g, w, s, t, hyper, lambda s, hyper: s + hyper["epsilon"])


def doubled_epsilon(g, w, s, t, hyper):
    return rmsprop(g, w, s, t, hyper, lambda s, hyper: np.sqrt(s) + 2 * hyper["epsilon"])


def upside_down(g, w, s, t, hyper):
    _, s = rmsprop(g, w, s, t, hyper)
    return w - (np.sqrt(s) + hyper["epsilon"]) / (hyper["learning_rate"] * g), s


def summed_squares(g, w, s, t, hyper):
    s = hyper["decay"] * s + g * g
    return w - hyper["learning_rate"] * g / (np.sqrt(s) + hyper["epsilon"]), s


@pytest.mark.parametrize(
    ("record", "kind", "update"),
    [
        (MOMENTUM, "again", nesterov),
        (MOMENTUM, "old", old_momentum),
        (MOMENTUM, "bias", unbiased_momentum),
        (MOMENTUM, "decay", coupled_decay),
        (RMSPROP, "swap", epsilon_in_root),
        (RMSPROP, "bypass", without_root),
        (RMSPROP, "bypass", summed_squares),
        (RMSPROP, "scale", doubled_epsilon),
        (RMSPROP, "order", upside_down),
    ],
)
def test_an_edit_is_another_formula(record, kind, update):
    proof = proofs.draw(record)
    with np.errstate(all="ignore"):
        ends = loop(proof, update)
        matches = {each.kind for each in edits(proof) if equal(proof, each, ends)}
    assert kind in matches


def test_a_slot_starts_elsewhere():
    proof = proofs.draw(RMSPROP)
    (edit,) = [each for each in edits(proof) if each.text == "mean starts at 1"]
    assert edit.kind == "start" and equal(proof, edit, loop(proof, rmsprop, slot=1.0))


def test_a_running_maximum_is_amsgrad():
    adam = recorded.load("LazyAdamOptimizer")
    proof = proofs.draw(adam)
    found = [each for each in edits(proof) if each.kind == "maximum"]
    wanted = list(run(proof, with_adams_epsilon(AMSGRAD).in_dtype("float64")))
    assert [equal(proof, each, wanted) for each in found] == [False, True]  # of m, of v


def with_adams_epsilon(record):
    """Returns AMSGrad with the epsilon of TensorFlow, beside the root of the biased v."""

    def amsgrad(grad, value, slots, hyper):
        step = cast(hyper.global_step + 1)
        m = hyper.beta1 * slots.m + (1 - hyper.beta1) * grad
        v = hyper.beta2 * slots.v + (1 - hyper.beta2) * square(grad)
        top = maximum(slots.top, v)
        rate = hyper.learning_rate * sqrt(1 - hyper.beta2**step) / (1 - hyper.beta1**step)
        return value - rate * m / (sqrt(top) + hyper.epsilon), {"m": m, "v": v, "top": top}

    hyper = {name: each.value for name, each in record.hyperparameters.items()}
    return recorded.rule(amsgrad, {"m": 0.0, "v": 0.0, "top": 0.0}, hyper)


def rows_of(ids, values):
    """Yields the ids of which there is one row, with this row."""
    for each in dict.fromkeys(ids):
        yield each, values[ids == each]


PARTS = {
    "first": lambda rows: [(each, values[0]) for each, values in rows_of(*rows)],
    "last": lambda rows: [(each, values[-1]) for each, values in rows_of(*rows)],
    "mean": lambda rows: [(each, np.mean(values, 0)) for each, values in rows_of(*rows)],
    "each": lambda rows: list(zip(*rows)),
}


@pytest.mark.parametrize("way", PARTS)
def test_repeated_ids_are_treated_in_other_ways(way):
    proof = proofs.draw(MOMENTUM, rows=True)
    (edit,) = [each for each in edits(proof) if each.kind == "ids" and way in each.text]
    with np.errstate(all="ignore"):
        found = list(run(proof, edit.record, optimizer_class=edit.optimizer_class))
        ends = loop(proof, momentum, parts=PARTS[way])
    # The mean of a gradient is a float32 in the loop.
    for one, other in zip(found, ends):
        np.testing.assert_allclose(one["table"], other["table"], rtol=1e-5, atol=1e-7)
    largest = proofs.judge(proof.ends, dict(enumerate(found, start=1))).error.ratio
    assert largest > proofs.BOUND


def test_all_rows_are_updated():
    proof = proofs.draw(MOMENTUM, rows=True)
    (edit,) = [each for each in edits(proof) if each.kind == "rows"]
    dense = []
    for gradients in proof.gradients:
        dense.append({name: np.zeros(x.shape) for name, x in proof.start.variables.items()})
        for name, (ids, values) in gradients.items():
            np.add.at(dense[-1][name], ids, values.astype("float64"))
    assert equal(proof, edit, loop(proof._replace(gradients=dense), momentum))


def test_all_kinds_of_edits_occur_and_no_edit_is_the_rule():
    found = set()
    for name in "AdamOptimizer", "AdagradDecayOptimizer":
        proof = proofs.draw(recorded.load(name), rows=True)
        found.update(edit.kind for edit in edits(proof))
    assert found == set(KINDS)
    records = [repr(each.record) for each in edits(proof) if each.kind != "ids"]
    assert len(set(records)) == len(records)
