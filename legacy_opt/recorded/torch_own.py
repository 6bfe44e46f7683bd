"""Translates states to PyTorch's own optimizers, where one is the same. Needs PyTorch."""

from legacy_opt.recorded.torch.own import TorchOwn, from_state, write  # noqa: F401 - `export` calls it

__all__ = ["TorchOwn", "from_state"]
