"""Moves states of trainings between files and JAX. Needs JAX, but no TensorFlow."""

from legacy_opt.recorded.jax.state import load_state, state_of

__all__ = ["load_state", "state_of"]
