"""Clips gradients in Keras 2, after summing the gradients of equal ids."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import tensorflow as tf

from legacy_opt.core.duplicate_ids import with_summed_duplicates
from legacy_opt.core.types import GradAndVar, Gradient, GradsAndVars, Tensor, Variable

from ...v1_optimizers.temporary_attributes import with_attributes

_LIMITS = ("clipvalue", "clipnorm", "global_clipnorm")


def sums_duplicates_first(base: Any):
    """Returns a subclass of OptimizerV2 that sums the gradients of equal ids before it clips.

    The subclass clips in `apply_gradients`, like Keras from TensorFlow 2.4 on. Older versions of
    Keras do not clip there, and lack global_clipnorm.
    """
    if hasattr(base, "_transform_gradients"):
        return type("Summing", (_Summing, base), {})
    has_method = hasattr(base, "_clip_gradients")
    return type("Clipping", (_Clipping, base), {"_base_clips_gradients": has_method})


class _Summing:
    def _transform_gradients(self, grads_and_vars: List[GradAndVar]) -> List[GradAndVar]:
        if any(getattr(self, limit) is not None for limit in _LIMITS):
            grads_and_vars = with_summed_duplicates(grads_and_vars)
        return super()._transform_gradients(grads_and_vars)


class _Clipping:
    _base_clips_gradients = False  # whether the base class has _clip_gradients (TF 2.1 to 2.3)

    def __init__(self, name: str, **kwargs: Any):
        limits = {key: kwargs.pop(key, None) for key in _LIMITS}
        for key, limit in limits.items():
            if limit is not None and limit < 0:
                raise ValueError(f"Expected {key} >= 0, received: {limit}")
        if limits["clipnorm"] is not None and limits["global_clipnorm"] is not None:
            raise ValueError("Cannot accept both clipnorm and global_clipnorm.")
        # The base class in a subclass is OptimizerV2.
        super().__init__(name, **kwargs)  # pyright: ignore[reportCallIssue]
        self.clipvalue, self.clipnorm, self.global_clipnorm = limits.values()

    def get_config(self) -> Dict[str, Any]:
        limits = {key: vars(self)[key] for key in _LIMITS if vars(self)[key] is not None}
        return {"name": self._name, **limits}

    def __getattribute__(self, name: str):
        # Up to TensorFlow 2.0, OptimizerV2 has clipnorm and clipvalue only if they were given, and
        # Keras decides with `hasattr` whether to clip computed gradients and to allow loss scaling.
        # So hide each limit that was not given. While gradients are computed, hide both limits,
        # because `_clipped` clips later.
        may_lack = name in ("clipvalue", "clipnorm") and not self._base_clips_gradients
        if may_lack and (vars(self).get("_computing") or vars(self).get(name) is None):
            raise AttributeError(name)
        return super().__getattribute__(name)

    def get_gradients(self, loss: Tensor, params: List[Variable]) -> List[Optional[Gradient]]:
        with with_attributes(self, {"_computing": True}):
            return super().get_gradients(loss, params)

    def _compute_gradients(self, *args: Any, **kwargs: Any) -> List[GradAndVar]:
        with with_attributes(self, {"_computing": True}):
            return super()._compute_gradients(*args, **kwargs)

    def _clip_gradients(self, grads: List[Optional[Gradient]]) -> List[Optional[Gradient]]:
        return grads  # called in TensorFlow 2.1 to 2.3; `_clipped` clips later

    def apply_gradients(self, grads_and_vars: GradsAndVars, *args: Any, **kwargs: Any):
        return super().apply_gradients(self._clipped(grads_and_vars), *args, **kwargs)

    def _clipped(self, grads_and_vars: GradsAndVars) -> List[GradAndVar]:
        grads_and_vars = list(grads_and_vars)
        value, norm, global_norm = (vars(self)[key] for key in _LIMITS)
        if value is None and norm is None and global_norm is None:
            return grads_and_vars
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                "clipvalue, clipnorm and global_clipnorm need the gradient of all replicas, "
                "which this version of Keras does not provide. Use TensorFlow 2.4 or newer, or "
                "clip the gradients in the loss function."
            )
        pairs = with_summed_duplicates([(g, v) for g, v in grads_and_vars if g is not None])
        grads, variables = [g for g, _ in pairs], [v for _, v in pairs]
        if value is not None:
            grads = [tf.clip_by_value(g, -value, value) for g in grads]
        if norm is not None:
            grads = [tf.clip_by_norm(g, norm) for g in grads]
        if global_norm is not None and grads:
            grads, _ = tf.clip_by_global_norm(grads, global_norm)
        return list(zip(grads, variables)) + [pair for pair in grads_and_vars if pair[0] is None]
