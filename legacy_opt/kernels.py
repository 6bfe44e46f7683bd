"""Finds and applies TensorFlow's fused kernels, for the method `fused` of optimizers."""

from legacy_opt.core.fused_kernels import apply, find

__all__ = ["apply", "find"]
