"""Tests recorded rules in JAX and optax, on processors."""

import functools

import jax
import jax.numpy as jnp

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
ones = functools.partial(jnp.ones, dtype="float32")  # not float64
