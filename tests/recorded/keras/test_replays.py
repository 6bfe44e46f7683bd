"""Tests that proofs judge optimizers of Keras 3, on JAX and PyTorch."""

import pytest

from legacy_opt import proofs, recorded
from tests.recorded.references import refused, replayed, trained


@pytest.mark.parametrize(
    "rule, cls, expected",
    [
        ("MomentumOptimizer", "SGD", ("DIFFERS", 7, "w")),  # after the rate halves
        ("AdamOptimizer", "Adam", "sound"),
        ("FtrlOptimizer", "Ftrl", "sound"),
        ("AdagradOptimizer", "Adagrad", ("DIFFERS", 1, "w")),  # its epsilon, seen in float64 alone
    ],
)
def test_optimizers_of_keras(rule, cls, expected):
    found = replayed(proofs.draw(recorded.load(rule)), f"keras:keras.optimizers:{cls}")
    assert found == expected or (found[0] != "DIFFERS" and expected == "sound")


def test_recorded_trainings_from_any_state():
    names = {"table": "a/b/c:part_0"}
    record = recorded.load("LazyAdamOptimizer")
    for rows in (False, True):
        proof = trained(record, rows=rows, missing=True, new_names=names)
        report = proofs.replay(proof, proofs.find("legacy-opt:keras"))
        assert report.verdict.name == "EQUAL" and report.notes == ()
        assert set(report.drift) > {*proof.start.variables}
    refused("record from the first step", replayed, proof, "keras:keras.optimizers:Adam")


def test_hyperparameters_that_float32_rounds():
    """Keras has a rate of float64 in the second opinion."""
    proof = proofs.draw(
        recorded.load("AdamOptimizer"), hyperparameters={"learning_rate": 0.01, "beta1": 0.9}
    )
    assert replayed(proof, "keras:keras.optimizers:Adam")[0] != "DIFFERS"


def test_rows_and_hyperparameters():
    proof = proofs.draw(recorded.load("AdamOptimizer"), rows=True, steps=3)
    report = proofs.replay(proof, proofs.find("keras:keras.optimizers:Adam"), cause=False)
    assert report.verdict.name != "DIFFERS" and "became dense" in report.notes[-1]
    hyper = [dict(each) for each in proof.hyperparameters]
    hyper[2]["beta1"] = 0.5
    problem = "cannot be judged: 'beta_1' changes between steps"
    changed = proof._replace(hyperparameters=hyper)
    refused(problem, replayed, changed, "keras:keras.optimizers:Adam")
