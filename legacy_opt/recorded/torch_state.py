"""Moves states of trainings between files and PyTorch. Needs PyTorch, but no TensorFlow."""

from legacy_opt.recorded.torch.state import load_state, state_of

__all__ = ["load_state", "state_of"]
