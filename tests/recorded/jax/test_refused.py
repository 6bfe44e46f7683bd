"""Tests what recorded rules in JAX and optax refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from legacy_opt import recorded
from legacy_opt.recorded import jax_state
from legacy_opt.recorded.jax import JaxOptimizer, Rows
from legacy_opt.recorded.optax import from_record
from tests.recorded import references
from tests.recorded.jax import ones
from tests.recorded.references import EVERY_RULE, LAZY_ADAM, refused


@EVERY_RULE
def test_other_values_of_hyperparameters(name):
    """Records follow numbers and schedules; where they cannot, these are refused."""
    record, hyper, gradients, expected = references.with_other_hyperparameters(name)
    schedules = {name: lambda count, each=each: each + 0 * count for name, each in hyper.items()}
    optimizer, params = JaxOptimizer(record, "exact", **schedules), {"w": ones((4, 3))}
    state, step = jax.jit(optimizer.init)(params), jax.jit(optimizer.step)
    transformation, its_params = from_record(record, **hyper), {"w": ones((4, 3))}
    its_state, update = transformation.init(its_params), jax.jit(transformation.update)
    for gradient in gradients:
        params, state = step(params, state, {"w": gradient})
        updates, its_state = update({"w": gradient}, its_state, its_params)
        its_params = optax.apply_updates(its_params, updates)
    for found in params, its_params:
        assert np.array_equal(found["w"], expected)
    for name in record.fixed:
        for wrong in 0.5, lambda count: 0.0 * count:
            refused(f"{name} was 0.0 when", JaxOptimizer, record, **{name: wrong})
            refused(f"{name} was 0.0 when", from_record, record, **{name: wrong})
        its = state._replace(hyperparams={**state.hyperparams, name: jnp.float32(0.5)})
        refused("hyperparams must be", optimizer.step, params, its, {"w": gradients[0]})


PARAMS = {"w": ones((3, 2))}


def test_arguments():
    refused("no hyperparameter 'rate'", from_record, LAZY_ADAM, rate=0.1)
    refused("one of exact, fast, got 'exakt'", from_record, LAZY_ADAM, level="exakt")
    refused("cannot be 0.5", from_record, references.OF_INTEGERS, learning_rate=0.5)
    scheduled = from_record(references.OF_INTEGERS, learning_rate=lambda step: 0.5 * step)
    refused("learning_rate was an integer", scheduled.init, ones(2))
    ftrl = recorded.load("FtrlOptimizer")._replace(dtype="float64")
    refused("does not subtract an update", from_record, ftrl)


def test_parameters_gradients_and_state():
    optimizer, params = from_record(LAZY_ADAM), PARAMS
    refused("'w' has the dtype float16", optimizer.init, {"w": jnp.ones(2, "float16")})
    state = optimizer.init(params)
    refused("params is None", optimizer.update, params, state)
    refused("of the shape [2]", optimizer.update, {"w": ones(2)}, state, params)
    rows = {"w": Rows(jnp.ones(1, int), ones((1, 2)))}
    refused("for Rows, use JaxOptimizer.step", optimizer.update, rows, state, params)
    step = JaxOptimizer(LAZY_ADAM, "exact").step
    refused("ids must be integers", step, params, state, {"w": Rows(*2 * [ones((1, 2))])})
    changed = state._replace(hyperparams={"rate": 1.0})
    refused("hyperparams must be ['beta1'", optimizer.update, params, changed, params)
    step = JaxOptimizer(references.WITHOUT_ROWS, "exact").step
    refused("sparse gradients: no rows", step, params, state, rows)


def test_states():
    optimizer, params = from_record(LAZY_ADAM), PARAMS
    state = optimizer.init(params)
    saved = jax_state.state_of(LAZY_ADAM, state, params)
    masked = optax.masked(optimizer, {"w": True, "m": False})
    both = dict(params, m=ones(2))
    names = {"moving_mean": "m"}
    averages = jax_state.state_of(LAZY_ADAM, masked.init(both), both, names)
    assert set(averages.variables) == {"w", "moving_mean"}
    given = LAZY_ADAM, saved, masked.init(both), both, names
    refused("the state has no variable 'moving_mean'", jax_state.load_state, *given)
    other = recorded.load("MomentumOptimizer")
    refused("belongs to another rule", jax_state.load_state, other, saved, state, params)
    refused("state has 'w', but", jax_state.load_state, LAZY_ADAM, saved, state, {"x": params["w"]})
    refused("has 'y', but there is no", jax_state.state_of, LAZY_ADAM, state, params, {"x": "y"})
    refused("has 0 states", jax_state.state_of, LAZY_ADAM, optax.adam(0.1).init(params), params)
    refused("has 2 states", jax_state.state_of, LAZY_ADAM, [state, state], params)
