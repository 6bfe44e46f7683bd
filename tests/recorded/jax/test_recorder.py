"""Tests that `Recorder` records trainings of optax and JAX."""

import jax
import jax.numpy as jnp
import optax
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded.jax import JaxOptimizer
from tests.recorded.references import refused

PARAMS = {"b": {"w": jnp.ones((3, 2), "float32")}, "a": jnp.zeros((), "float32")}


@pytest.fixture(autouse=True, params=[False])
def enable_x64(request):
    """Most users do not enable x64."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param)
    yield
    jax.config.update("jax_enable_x64", before)


def trained(optimizer, record=None, has_step=False):
    """Returns the proof of a training."""
    recorder, params = proofs.Recorder(optimizer, record=record), PARAMS
    state = recorder.init(params)
    for i in range(5):
        factor = 0.125 * i - 0.25
        grads = {"b": {"w": params["b"]["w"] * factor}, "a": jnp.float32(factor)}
        if has_step:
            params, state = recorder.step(params, state, grads)
        else:
            updates, state = recorder.update(grads, state, params)
            params = optax.apply_updates(params, updates)
    (proof,) = recorder.run().proofs.values()
    assert set(proof.start.variables) == {"b/w", "a"} and len(proof.gradients) == 5
    return proof


def verdict(proof, target, **mapping):
    return proofs.replay(proof, proofs.find(target, mapping), cause=False).verdict.name


def test_transformations_are_equal():
    proof = trained(optax.adam(0.1))
    assert verdict(proof, "optax:optax:adam", learning_rate="0.1") == "EQUAL"
    assert verdict(proof, "optax:optax:adam", learning_rate="0.1", eps="1e-5") == "DIFFERS"


def test_a_schedule():
    rates = optax.cosine_decay_schedule(0.1, 20)
    proof = trained(optax.inject_hyperparams(optax.adamw)(rates))
    assert verdict(proof, "optax:optax:adamw") == "EQUAL"
    assert len({each["learning_rate"] for each in proof.hyperparameters}) == 5


@pytest.mark.parametrize("enable_x64", [True], indirect=True)
def test_our_own_optimizer():
    optimizer = JaxOptimizer(recorded.load("AdamOptimizer"), "exact", learning_rate=0.01)
    proof = trained(optimizer, has_step=True)
    assert verdict(proof, "legacy-opt:numpy") == "EQUAL"


def test_compiled_trainings_are_refused():
    recorder = proofs.Recorder(optax.sgd(0.1))
    params = {"w": jnp.ones(2)}
    state = recorder.init(params)
    with pytest.raises(proofs.ProofError, match="train without jax.jit"):
        jax.jit(recorder.update)(params, state, params)
    refused("call update(gradients, state, params)", recorder.update, params, state)
    other = proofs.Recorder(optax.sgd(0.1))
    refused("make the recorder before the first step", other.update, params, state, params)
