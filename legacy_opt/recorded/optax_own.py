"""Translates states to optax' own optimizers, where one is the same. Needs JAX and optax."""

from legacy_opt.recorded.jax.own import OptaxOwn, from_state, write  # noqa: F401 - `export` calls it

__all__ = ["OptaxOwn", "from_state"]
