"""Makes transformations of optax from recorded rules. Needs optax, but no TensorFlow."""

from legacy_opt.recorded.jax.transformation import State, from_record

__all__ = ["State", "from_record"]
