"""The base class of the rules of TensorFlow Addons, which count their own steps.

TensorFlow Addons reads Keras' `iterations` and raises its betas to the power of the step t. The
class here counts in a shared variable `step`. Powers are computed in float64 and rounded once, so
that they have the same bits in every way to train. (In float32, TensorFlow's own power differs
from them in the last bit in one of 150 of the first 20,000 steps for 0.999.)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt.core.hyperparameters import wide_dtype
from legacy_opt.core.named_values import changed
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.types import DType, Hyperparameter, Tensor, Variable
from legacy_opt.core.update import Fading, NewValue, RuleResult, Values


class CountedStepsOptimizer(RuleOptimizer):
    """Base class of optimizers that count their steps in `step`, a float64 scalar.

    A subclass overrides `formula`, not `rule`. It computes in float32 for 16-bit variables. `hyper`
    includes `t` (the step's number, from 1), `is_sparse`, and `<beta>_power` for each of `_raised`.
    """

    _raised: Tuple[str, ...] = ()

    def non_slots(self) -> Dict[str, Hyperparameter]:
        return {"step": np.float64(0)}

    def update_non_slots(self, values: Values, hyper: Values) -> Dict[str, Tensor]:
        return {"step": values.step + 1}

    def hyper_for(self, variable: Variable) -> Values:
        hyper = self.hyperparameters(wide_dtype(variable.dtype))
        t, powers = hyper.step + 1, {}
        for name in self._raised:
            if hasattr(hyper, name):
                beta = tf.cast(getattr(hyper, name), tf.float64)
                powers[name + "_power"] = tf.cast(tf.pow(beta, tf.cast(t, tf.float64)), t.dtype)
        return changed(hyper, t=t, is_sparse=False, **powers)

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        dtype, wide = grad.dtype, wide_dtype(grad.dtype)
        wide_slots = {name: tf.cast(each, wide) for name, each in vars(slots).items()}
        grad, value = tf.cast(grad, wide), tf.cast(value, wide)
        change, new = self.formula(grad, value, SimpleNamespace(**wide_slots), hyper)
        return _cast(change, dtype), {name: _cast(each, dtype) for name, each in new.items()}

    def sparse_rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        return self.rule(grad, value, slots, changed(hyper, is_sparse=True))

    def formula(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        """Computes `rule` in float32 or float64."""
        raise NotImplementedError


def _cast(change: Any, dtype: DType) -> Any:
    if isinstance(change, (Fading, NewValue)):
        return type(change)(*(tf.cast(part, dtype) for part in change))
    return tf.cast(change, dtype)
