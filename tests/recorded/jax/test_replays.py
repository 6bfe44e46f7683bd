"""Tests that proofs judge transformations of optax."""

import sys
import textwrap

import pytest

from legacy_opt import proofs, recorded
from tests.recorded.references import refused, replayed, trained
from tests.recorded.written_rules import AMSGRAD


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


@pytest.mark.parametrize("target", ["jax-exact", "jax-native", "optax"])
def test_recorded_trainings_from_any_state(target):
    names = {"w": "a/b/c:part_0", "b": "a/b/c:part_1"}
    proof = trained(recorded.load("AdamOptimizer"), missing=True, new_names=names)
    report = proofs.replay(proof, proofs.find(f"legacy-opt:{target}"))
    assert report.verdict.name == "EQUAL" and report.notes == ()
    assert set(report.drift) > {*proof.start.variables}


def test_other_transformations_begin_with_the_first_step():
    momentum = trained(recorded.load("MomentumOptimizer"))
    refused("record from the first step", replayed, momentum, "optax:optax:sgd")


def test_amsgrad_of_optax():
    """It takes the maximum of corrected moments, so early ones count for too long."""
    proof = proofs.draw(AMSGRAD, hyperparameters={"epsilon": 0.0})
    assert replayed(proof, "optax:optax:amsgrad") == ("DIFFERS", 2, "w")
    assert replayed(proof, "legacy-opt:jax-exact")[0] == "EQUAL"


def test_sparse_gradients_become_dense():
    proof = proofs.draw(recorded.load("GradientDescentOptimizer"), rows=True)
    report = proofs.replay(proof, proofs.find("optax:optax:sgd"), cause=False)
    assert report.verdict.name == "EQUAL" and "became dense" in report.notes[-1]
    assert report.versions["optax"] and report.versions["jax"]
    refused("cannot be judged: updates of optax are dense", replayed, proof, "legacy-opt:optax")


MODULE = """
    import jax
    import optax

    def sgd(learning_rate, momentum, nesterov=False):
        return optax.inject_hyperparams(optax.sgd)(learning_rate, momentum, nesterov)

    def renamed(lr, momentum):
        return optax.chain(optax.identity(), sgd(lr, momentum))

    def of_jax(learning_rate, momentum):
        inner = optax.sgd(learning_rate, momentum)

        def update(grads, state, params=None):
            others = jax.tree_util.tree_map(lambda grad: grad.at[:].multiply(2), grads)
            for grad in grads.values():
                grad *= 3  # a new array
            return inner.update(grads, state, params)

        return optax.GradientTransformation(inner.init, update)
"""


@pytest.mark.parametrize(
    "name, mapping", [("sgd", {}), ("sgd", {"nesterov": "False"}), ("renamed", {}), ("of_jax", {})]
)
def test_functions_of_users(tmp_path, monkeypatch, name, mapping):
    (tmp_path / "users_functions.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "users_functions", raising=False)
    proof = proofs.draw(recorded.load("MomentumOptimizer"))
    assert replayed(proof, f"optax:users_functions:{name}", **mapping)[0] == "EQUAL"


@pytest.mark.parametrize("target", ["jax", "jax-exact", "jax-fast", "optax", "optax-fast"])
def test_our_targets_follow_the_rate(target):
    proof = proofs.draw(recorded.load("MomentumOptimizer"))
    assert replayed(proof, f"legacy-opt:{target}")[0] in ("EQUAL", "ROUNDING")
