"""Tests that our optimizers of JAX and optax pass all vectors, in compiled steps."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from legacy_opt import proofs
from legacy_opt.recorded import jax_state, numpy
from legacy_opt.recorded.jax import JaxOptimizer, Rows
from legacy_opt.recorded.optax import from_record
from tests.recorded.vectors import CELLS, DENSE, fails

BITS, ROUNDED = ("EQUAL",), ("EQUAL", "ROUNDING")
# An update that is added to a variable loses digits of a rule that replaces the variable.
ADDED = [cell for cell in DENSE if cell[0] != "ConditionalGradientOptimizer"]


def compiled(make, is_optax):
    """Returns a function that judges by a proof. The proofs of a rule share a compiled step."""
    steps = {}

    def step_of(optimizer):
        @jax.jit
        def step(params, state, gradients):
            if not is_optax:
                return optimizer.step(params, state, gradients)
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        return step

    def trained(proof):
        record, weights = proof.record, proof.start.variables
        optimizer = make(record, **proof.hyperparameters[0])
        step = steps.setdefault((record.optimizer, *weights), step_of(optimizer))
        # JAX sorts the names of a dict; clipping adds in the order of names.
        params = collections.OrderedDict((name, jnp.array(each)) for name, each in weights.items())
        state = optimizer.init(params)
        if proof.start.global_step:
            names = {name: name for name in params}
            state, params = jax_state.load_state(record, proof.start, state, params, names)
        for gradients, values in zip(proof.gradients, proof.hyperparameters):
            state = state._replace(hyperparams=dict(values))
            params, state = step(params, state, in_jax(gradients, params))
            yield {name: np.asarray(each) for name, each in params.items()}

    def judged(proof):
        return proofs.judge(proof.ends, dict(enumerate(trained(proof), start=1))).name

    return judged


def in_jax(gradients, params):
    """Returns gradients in the order of parameters."""
    return collections.OrderedDict(
        (
            name,
            Rows(*gradients[name]) if isinstance(gradients[name], numpy.Rows) else gradients[name],
        )
        for name in params
    )


@pytest.mark.parametrize("level, expected", [("exact", BITS), ("native", BITS), ("fast", ROUNDED)])
def test_our_target(level, expected):
    def make(record, **hyperparameters):
        return JaxOptimizer(record, level, **hyperparameters)

    assert not fails(compiled(make, False), *expected, cells=CELLS)


@pytest.mark.parametrize(
    "level, cells, expected", [("exact", DENSE, BITS), ("fast", ADDED, ROUNDED)]
)
def test_our_transformation_of_optax(level, cells, expected):
    def make(record, **hyperparameters):
        return from_record(record, level, **hyperparameters)

    assert not fails(compiled(make, True), *expected, cells=cells)
