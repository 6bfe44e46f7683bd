"""Tests that proofs judge transformations of optax."""

import pytest

from legacy_opt import proofs, recorded
from legacy_opt.programs.program import ELEMENT, SLOT, Change, Node, Program
from tests.recorded.references import refused, replayed


@pytest.mark.parametrize(
    "rule, function, mapping, expected",
    [
        ("LionOptimizer", "lion", {}, "EQUAL"),
        ("GradientDescentOptimizer", "sgd", {}, "EQUAL"),
        ("MomentumOptimizer", "sgd", {"nesterov": "True"}, ("DIFFERS", 1, "w")),
        ("AdagradOptimizer", "adagrad", {"eps": "0.0"}, "ROUNDING"),
        ("AdagradOptimizer", "adagrad", {}, ("DIFFERS", 1, "w")),  # an epsilon of 1e-7
        ("AdamOptimizer", "adam", {}, ("DIFFERS", 1, "w")),  # epsilon after the correction
    ],
)
def test_transformations_of_optax(rule, function, mapping, expected):
    found = replayed(proofs.draw(recorded.load(rule)), f"optax:optax:{function}", **mapping)
    assert found == expected or found[0] == expected


def amsgrad():
    """Returns the rule of AMSGrad: Adam that divides by the largest v so far."""
    record = recorded.load("AdamOptimizer")
    (group,) = record.groups
    program, v = group.dense, group.dense.changes["v"].node
    place = next(i for i, each in enumerate(program.nodes) if each.inputs == (v,))  # its root
    maximum = place + 1

    def moved(i):
        return i if i < place else i + 2

    later = [each._replace(inputs=tuple(map(moved, each.inputs))) for each in program.nodes[place:]]
    later[0] = later[0]._replace(inputs=(maximum,))
    nodes = [
        *program.nodes[:place],
        Node("Input", "float32", ELEMENT, (), (SLOT, "vhat")),
        Node("Maximum", "float32", ELEMENT, (place, v), None),
        *later,
    ]
    changes = dict(program.changes, vhat=Change("assign", maximum, None))
    dense = Program(program.by_rows, tuple(nodes), moved(program.value), changes)
    slots = dict(group.slots, vhat=group.slots["v"]._replace(suffix="vhat"))
    return record._replace(groups=(group._replace(dense=dense, slots=slots, sparse="none"),))


def test_amsgrad_of_optax():
    """It takes the maximum of corrected moments, so early ones count for too long."""
    proof = proofs.draw(amsgrad(), epsilon=0.0)
    assert replayed(proof, "optax:optax:amsgrad") == ("DIFFERS", 2, "w")
    assert replayed(proof, "legacy-opt:jax-exact")[0] == "EQUAL"


def test_sparse_gradients_become_dense():
    proof = proofs.draw(recorded.load("GradientDescentOptimizer"), rows=True)
    report = proofs.replay(proof, proofs.find("optax:optax:sgd"))
    assert report.verdict.name == "EQUAL" and "became dense" in report.notes[-1]
    assert report.versions["optax"] and report.versions["jax"]
    refused("cannot be judged: updates of optax are dense", replayed, proof, "legacy-opt:optax")
