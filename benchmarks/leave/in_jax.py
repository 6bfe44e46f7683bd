"""Makes steps of optimizers in JAX, compiled, with donated parameters and states."""

import os

import jax
import jax.numpy as jnp
import optax

from legacy_opt import recorded
from legacy_opt.recorded.jax import JaxOptimizer, Rows

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)  # "exact" needs it

_MULTIPLY = jax.jit(jnp.matmul)
_FACTORS = jnp.ones((2, 1000, 1000), "float32")


def facts():
    """Returns a dict of facts that the results depend on."""
    return {"jax": jax.__version__, "optax": optax.__version__, "threads": os.cpu_count()}


def operation():
    """Multiplies two matrices in all threads."""
    jax.block_until_ready(_MULTIPLY(*_FACTORS))


def step(way, name, case):
    """Returns a function that runs one step of an optimizer with new parameters.

    Raises:
      ValueError: `JaxOptimizer` does not have this level.
    """
    names = [f"w{number}" for number in range(case.count)]
    params = {each: jnp.asarray(case.numbers(0)) for each in names}
    gradient = jnp.asarray(case.numbers(1, rows_only=bool(case.rows)))
    if way != "optax":
        optimizer = JaxOptimizer(recorded.load(name + "Optimizer"), way)
        update = optimizer.step
        gradient = Rows(jnp.asarray(case.ids()), gradient) if case.rows else gradient
    else:
        optimizer = getattr(optax, name)(0.001)
        if case.rows:  # optax' optimizers have no sparse gradients
            gradient = jnp.zeros(case.shape, gradient.dtype).at[case.ids()].set(gradient)

        def update(params, state, gradients):
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

    compiled = jax.jit(update, donate_argnums=(0, 1))
    gradients = {each: jax.tree.map(jnp.copy, gradient) for each in names}
    held = [params, optimizer.init(params)]

    def run():
        held[:] = compiled(*held, gradients)
        jax.block_until_ready(held)

    return run
