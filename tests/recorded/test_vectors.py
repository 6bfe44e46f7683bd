"""Tests that NumPy and native kernels pass all vectors; that these are what the tool draws.

The tests of other libraries are in torch/, jax/ and keras/, those of Sessions and `to_keras` in
test_vectors_in_tensorflow.py.
"""

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded.native import NativeOptimizer
from legacy_opt.recorded.proofs.reference import run
from tests.recorded.vectors import CELLS, INVALID, by, fails, vector
from tests.tools import proof_power, vectors

pytestmark = [pytest.mark.once, INVALID]  # they do not need TensorFlow


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_our_targets(target):
    assert not fails(by(f"legacy-opt:{target}"), "EQUAL")


def test_native_kernels_in_float64():
    def native(record, weights, library, **hyperparameters):
        return NativeOptimizer(record, weights, **hyperparameters)

    def judged(proof):
        wide = proof.record.in_dtype("float64")
        for step, found in enumerate(run(proof, wide, optimizer_class=native), start=1):
            for name, exact in proof.ends[step].exact.items() if step in proof.ends else ():
                np.testing.assert_array_equal(found[name], exact)
        return "EQUAL"

    assert not fails(judged, "EQUAL")


def test_every_rule_has_vectors():
    missing = {cell for cell in vectors.names() if cell not in CELLS}
    assert {vectors.path_of(*cell) for cell in CELLS} == set(vectors.FOLDER.iterdir())
    assert {name for name, _ in missing} == {"ConditionalGradientOptimizer", "NovoGradOptimizer"}
    assert all(kind.startswith("rows") and not vectors.drawn(name, kind) for name, kind in missing)


@pytest.mark.in_turn(kind=list(vectors.KINDS), name=sorted({name for name, _ in CELLS}))
def test_vectors_are_what_the_tool_draws(kind, name):
    """Functions of NumPy in float64 may differ in the last digits."""
    kind = kind if (name, kind) in CELLS else "dense"
    found, expected = vectors.drawn(name, kind), vector(name, kind)
    assert found.start.record == expected.start.record
    assert found.hyperparameters == expected.hyperparameters and [*found.ends] == [*expected.ends]
    for one, other in zip(found.gradients, expected.gradients):
        np.testing.assert_equal(one, other)
    for step, end in expected.ends.items():
        for its, precision in ("values", 0), ("exact", 1e-12), ("bars", 1e-3):
            for variable, array in getattr(end, its).items():
                drawn = getattr(found.ends[step], its)[variable]
                np.testing.assert_allclose(drawn, array, precision, 0)


@pytest.mark.full
@pytest.mark.parametrize("gradients", ["dense", "rows"])
def test_the_power_of_the_vectors(gradients):
    found = [
        ratio for name in recorded.catalogue() for _, ratio in proof_power.found_by(name, gradients)
    ]
    noticed = sum(ratio > proofs.BOUND for ratio in found)
    assert len(found) > 7000 and noticed >= 0.99 * len(found), (noticed, len(found))
