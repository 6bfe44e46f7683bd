"""Finds and applies TensorFlow's fused kernels, for the method `fused` of a `RuleOptimizer`.

A fused kernel is a single TensorFlow op for the whole update of a variable.
"""

from legacy_opt.core.fused_kernels import apply, find

__all__ = ["apply", "find"]
