"""The update of `DecoupledWeightDecayExtension` as a pure function, for native kernels."""

from __future__ import annotations

from typing import Any, Callable, Dict

import tensorflow as tf

from legacy_opt.core import hyperparameters
from legacy_opt.core.native_rules import ChangedUpdate, Results
from legacy_opt.core.types import DType, Tensor, V1Optimizer, Variable

_NAME = "decoupled_weight_decay"  # the name of the weight decay in the dict of scalars


def factor_of(optimizer: V1Optimizer, tensor: Tensor, dtype: DType) -> Tensor:
    """Returns the weight decay in a variable's dtype.

    This is a function and not a method of the optimizer, because `to_keras` analyzes methods: if a
    method read the Python number, `to_keras` would assume that users cannot change the weight decay
    during training.

    Args:
      optimizer: the optimizer with the weight decay.
      tensor: the weight decay of this training step.
      dtype: the dtype of the variable.
    """
    if dtype == tf.float32:
        return tf.cast(tensor, dtype)
    return hyperparameters.unrounded(tensor, optimizer._weight_decay, dtype)


class DecayedUpdate(ChangedUpdate):
    """An update that first decays the variable, or the rows in a sparse gradient."""

    def must_wait(self, variable: Variable) -> bool:
        """Whether a sparse gradient decays only some rows, but `base` updates all rows.

        A kernel that updates all rows cannot decay only some rows. So TensorFlow operations decay
        the rows before the kernel runs.
        """
        decays = self.optimizer.decays(variable)
        return decays and self.needs_whole_tensor(variable) or super().must_wait(variable)

    def kind(self, variable: Variable) -> Any:
        # `decay_var_list` may be another one in each step.
        return self.optimizer.decays(variable), super().kind(variable)

    def _scalars(self, dtype: DType) -> Dict[str, Tensor]:
        factor = factor_of(self.optimizer, self.optimizer._weight_decay_tensor, dtype)
        return dict(super()._scalars(dtype), **{_NAME: factor})

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        run = super().function(variable, sparse)
        if not self.optimizer.decays(variable) or sparse and self.needs_whole_tensor(variable):
            return run

        def update(grad, value, slots, scalars):
            decayed = value - scalars[_NAME] * value
            results = run(grad, decayed, slots, scalars)
            return Results(None, results.changes, results.new_value(decayed))

        return update
