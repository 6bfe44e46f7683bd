"""Tests comparisons of trainings that compute their own gradients."""

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from tests.recorded.references import trained

ADAM = recorded.load("AdamOptimizer")


def moved(proof, share):
    """Returns a proof whose gradients are larger by a share."""
    gradients = [
        {n: x * np.float32(1 + share) for n, x in each.items()} for each in proof.gradients
    ]
    return proofs.Run({"Adam": proof._replace(gradients=gradients)}, [1.0])


def test_a_training_that_is_the_same():
    run = proofs.Run({"Adam": trained(ADAM, 0)}, [1.0])
    report = proofs.compare_runs(run, run, [run])["Adam"]
    assert report.verdict.name == proofs.EQUAL and report.losses == ([1.0], [1.0])


def test_random_trainings_are_not_judged():
    proof = trained(ADAM, 0)
    run = proofs.Run({"Adam": proof}, [1.0])
    with pytest.raises(proofs.ProofError, match="random numbers or data that were not recorded"):
        proofs.compare_runs(run, run, [moved(proof, 0.1)])
    proofs.compare_runs(run, run, [moved(proof, 1e-6)])


def test_random_operations_that_were_not_recorded():
    proof = trained(ADAM, 0)
    inputs = [{"x:0": np.ones(2)}] * 2
    run = proofs.Run({"Adam": proof}, [1.0], inputs)
    other = proofs.Run({"Adam": proof}, [1.0], [{**each, "drop:0": np.ones(2)} for each in inputs])
    with pytest.raises(proofs.ProofError, match="lacks.*'drop:0'"):
        proofs.compare_runs(run, other, [run])


def test_another_gradient():
    proof = trained(ADAM, 0)
    run = proofs.Run({"Adam": proof}, [1.0])
    other = moved(proof, 1e-3)
    end = {
        s: e._replace(values={n: x + 1 for n, x in e.values.items()}) for s, e in proof.ends.items()
    }
    other = other._replace(proofs={"Adam": other.proofs["Adam"]._replace(ends=end)})
    report = proofs.compare_runs(run, other, [other])["Adam"]
    assert (report.verdict.name, report.origin) == (proofs.DIFFERS, "gradient")
    assert report.verdict.place.step == 1
