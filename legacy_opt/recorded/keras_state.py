"""Moves states of trainings between files and Keras 3. Needs no TensorFlow."""

from legacy_opt.recorded.keras.state import load_state, state_of

__all__ = ["load_state", "state_of"]
