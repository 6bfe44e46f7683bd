"""Tests that proofs find reported differences of optax and Keras; see ../torch."""

import pytest

from benchmarks.conformance.rules import RULES
from legacy_opt import proofs, recorded
from tests.recorded.references import replayed

AMSGRAD, KERAS = "optax:optax:amsgrad", "keras:keras.optimizers:SGD"


@pytest.mark.parametrize(
    "rule, place, other, target",
    [
        # optax #1389: the maximum of corrected moments, so the first corrections stay.
        ("AMSGrad", ("DIFFERS", 2, "w"), "AMSGrad, corrected first", AMSGRAD),
        # Keras' velocity contains the rate, which is halved after step 6.
        ("MomentumOptimizer", ("DIFFERS", 7, "w"), "momentum, rate inside", KERAS),
    ],
)
def test_a_reported_difference(rule, place, other, target):
    proof = proofs.draw(RULES.get(rule) or recorded.load(rule))
    assert replayed(proof, target) == place
    assert replayed(proof, "legacy-opt:jax-exact")[0] == "EQUAL"
    assert replayed(proofs.draw(RULES[other]), target)[0] in ("EQUAL", "ROUNDING")


def test_sound_optimizers_of_optax():
    assert (
        replayed(proofs.draw(recorded.load("MomentumOptimizer")), "optax:optax:sgd")[0] == "EQUAL"
    )
    assert replayed(proofs.draw(RULES["Adam, Algorithm 1"]), "optax:optax:adam")[0] == "EQUAL"
