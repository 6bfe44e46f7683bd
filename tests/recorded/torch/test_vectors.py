"""Tests that our optimizer of PyTorch passes all vectors."""

import pytest

from legacy_opt.proofs import targets
from legacy_opt.recorded import torch_state
from legacy_opt.recorded.torch import RecordedOptimizer
from tests.recorded.vectors import INVALID, by, fails


@INVALID
@pytest.mark.parametrize("level", ["exact", "native", "fast"])
def test_our_target(level):
    def goes_on(proof, steps):
        def make(params):
            optimizer = RecordedOptimizer(list(params.items()), proof.record, level, **steps[0])
            torch_state.load_state(optimizer, proof.start, params)
            return optimizer

        groups = [dict(each, lr=each["learning_rate"]) for each in steps]
        for each in groups:
            del each["learning_rate"]
        return targets._torch(make, proof, groups)

    expected = ["EQUAL", "ROUNDING"] if level == "fast" else ["EQUAL"]
    assert not fails(by(f"legacy-opt:torch-{level}", goes_on), *expected)
