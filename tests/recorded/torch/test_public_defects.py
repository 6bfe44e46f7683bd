"""Tests that proofs find differences that users reported in public, and accept sound optimizers.

Two more are in ../jax/test_public_defects.py. Where the library is not installed, a small function
with the reported formula replaces it.
"""

import pytest

from benchmarks.conformance.rules import RULES
from legacy_opt import proofs, recorded
from legacy_opt.recorded.proofs.reference import with_ends
from tests.recorded.references import replayed

OURS = "legacy-opt:torch-exact"
TORCH, FIXTURE = "torch:torch.optim:", "numpy:tests.recorded.public_defects:"
CASES = {
    # Adam's epsilon: PyTorch adds it after the correction, TensorFlow before.
    "epsilon": ("AdamOptimizer", TORCH + "Adam", {}, 1, OURS, {}),
    # RMSProp: PyTorch's mean starts at 0, TensorFlow's at 1; and epsilon.
    "rmsprop": ("RMSPropOptimizer", TORCH + "RMSprop", {}, 1, OURS, {}),
    # TorchEasyRec #669: sums of Adagrad start at 0, TensorFlow's at 0.1.
    "adagrad": (
        "AdagradOptimizer",
        TORCH + "Adagrad",
        {"eps": "0.0"},
        1,
        TORCH + "Adagrad",
        {"eps": "0.0", "initial_accumulator_value": "0.1"},
    ),
    # torchrec #4710, and pytorch-optimizer's FTRL: l2 counts once, TensorFlow's twice.
    "ftrl": ("FTRL, l2 twice", FIXTURE + "ftrl_once", {}, 1, FIXTURE + "ftrl_twice", {}),
    "dampening": (
        "MomentumOptimizer",
        TORCH + "SGD",
        {"dampening": "0.5"},
        2,
        TORCH + "SGD",
        {"dampening": "0.0"},
    ),
    # torch-optimizer #226 (and #443, below).
    "lamb": ("LAMB", FIXTURE + "lamb_uncorrected", {}, 1, FIXTURE + "lamb_sound", {}),
    # torch-optimizer #454.
    "sgdw": ("SGDW", FIXTURE + "sgdw_constant", {}, 1, FIXTURE + "sgdw_sound", {}),
    # timm clips by the global norm unless max_grad_norm=None.
    "clipping": ("LAMB", FIXTURE + "clipped_lamb", {}, 1, FIXTURE + "lamb_sound", {}),
}


def drawn(rule):
    return proofs.draw(RULES.get(rule) or recorded.load(rule))


@pytest.mark.parametrize("name", CASES)
def test_a_reported_difference(name):
    rule, target, mapping, step, sound, sound_mapping = CASES[name]
    proof = drawn(rule)
    assert replayed(proof, target, **mapping) == ("DIFFERS", step, "w")
    assert replayed(proof, sound, **sound_mapping)[0] in ("EQUAL", "ROUNDING")


@pytest.mark.parametrize(
    "rule, cls", [("Adam, Algorithm 1", "Adam"), ("RMSProp, epsilon outside", "RMSprop")]
)
def test_it_is_the_other_formula(rule, cls):
    assert replayed(drawn(rule), TORCH + cls)[0] == "ROUNDING"


def test_a_clamped_norm():
    """torch-optimizer #443: weights of a norm above 10 show it, which `draw` does not draw."""
    proof = drawn("LAMB")
    assert replayed(proof, FIXTURE + "lamb_clamped")[0] == "ROUNDING"
    larger = {name: 4 * each for name, each in proof.start.variables.items()}
    proof = proof._replace(start=proof.start._replace(variables=larger))
    proof = with_ends(proof, range(1, 11))
    assert replayed(proof, FIXTURE + "lamb_clamped") == ("DIFFERS", 1, "w")
    assert replayed(proof, FIXTURE + "lamb_sound")[0] in ("EQUAL", "ROUNDING")
