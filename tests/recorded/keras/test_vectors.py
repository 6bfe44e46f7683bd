"""Tests that our optimizer of Keras 3 passes all vectors, on JAX and PyTorch."""

from legacy_opt.proofs import targets
from legacy_opt.recorded import keras_state
from legacy_opt.recorded.keras import RecordedOptimizer
from tests.recorded.vectors import INVALID, by, fails


@INVALID
def test_our_target():
    def goes_on(proof, steps):
        class GoesOn(RecordedOptimizer):
            def build(self, variables):
                super().build(variables)
                keras_state.load_state(self, proof.start)

        def make():
            values, tables = dict(steps[0]), {"table"}.intersection(proof.start.variables)
            rate = values.pop("learning_rate")
            return GoesOn(proof.record, rate, hyperparameters=values, tables=tables)

        return targets._keras(make, proof, steps, needs_x64=True)

    assert not fails(by("legacy-opt:keras", goes_on), "EQUAL")
