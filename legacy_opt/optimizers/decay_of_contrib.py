"""Decoupled weight decay exactly as in `tf.contrib.opt`, for scripts that must not change.

`legacy-opt run`, `compat.patch_tensorflow` and `accelerate` use these classes in place of the
classes of the same names in `tf.contrib.opt`. Which variables decay differs from the public classes
of this package (`legacy-opt docs differences_from_originals`); everything else is the same.
"""

from __future__ import annotations

from typing import Any, Collection, Iterable, List, Optional, Type

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import Operation, V1Optimizer, Variable
from legacy_opt.core.update_methods import UpdateMethods
from legacy_opt.core.variable_access import is_resource
from legacy_opt.optimizers import adam_w, decoupled_weight_decay


class _DecayOfContrib:
    """Mixin that decides as `tf.contrib.opt` which variables decay."""

    def minimize(
        self, *args: Any, decay_var_list: Optional[Collection[Variable]] = None, **kwargs: Any
    ) -> Optional[Operation]:
        """Ignores `decay_var_list`, which tf.contrib.opt's apply_gradients replaces by None."""
        return super().minimize(*args[:_COMMON_ARGUMENTS], **kwargs)

    @staticmethod
    def _as_variables(decay_var_list: Iterable[Variable]) -> Optional[List[Variable]]:
        """An empty list means all variables. A partitioned variable is not its partitions."""
        return list(decay_var_list) or None

    def decays(self, variable: Variable) -> bool:
        """Rows do not decay if the other base class does not sum the rows of equal ids."""
        return super().decays(variable) and (
            self._sums_equal_ids(variable) or not self._has_sparse_gradient(variable)
        )

    def _sums_equal_ids(self, variable: Variable) -> bool:
        # tf.contrib.opt decays rows in _apply_sparse. Only TensorFlow's base class is sure to call
        # that method.
        name = "_apply_sparse_duplicate_indices"
        name = "_resource" + name if is_resource(variable) else name
        # pyright does not know that `self` is an UpdateMethods, too.
        update = getattr(super(UpdateMethods, self), name)  # pyright: ignore[reportArgumentType]
        return update.__func__ is getattr(V1Optimizer, name)

    def _has_sparse_gradient(self, variable: Variable) -> bool:
        whole = versions.distributed_variable(variable)
        local_results = tf.distribute.get_strategy().experimental_local_results
        return any(
            isinstance(part, tf.IndexedSlices)
            for grad, each in self._step_pairs
            if versions.distributed_variable(each) is whole
            for part in local_results(grad)
        )


_COMMON_ARGUMENTS = 8  # the number of arguments of `minimize` before decay_var_list


class DecoupledWeightDecayExtension(
    _DecayOfContrib, decoupled_weight_decay.DecoupledWeightDecayExtension
):
    """`tf.contrib.opt.DecoupledWeightDecayExtension`."""

    _suffix = decoupled_weight_decay.SUFFIX + "OfContrib"


class AdamWOptimizer(_DecayOfContrib, adam_w.AdamWOptimizer):
    """`tf.contrib.opt.AdamWOptimizer`."""


class MomentumWOptimizer(_DecayOfContrib, adam_w.MomentumWOptimizer):
    """`tf.contrib.opt.MomentumWOptimizer`."""


def extend_with_decoupled_weight_decay(base_optimizer: Type[V1Optimizer]) -> Type[V1Optimizer]:
    """`tf.contrib.opt.extend_with_decoupled_weight_decay`."""
    return decoupled_weight_decay.extended(DecoupledWeightDecayExtension, base_optimizer)
