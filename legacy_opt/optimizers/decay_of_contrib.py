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

_COMMON_ARGUMENTS = 8  # the number of arguments of `minimize` before decay_var_list


class _DecayOfContrib:
    """Mixin that chooses the variables that decay as `tf.contrib.opt` does."""

    def minimize(
        self, *args: Any, decay_var_list: Optional[Collection[Variable]] = None, **kwargs: Any
    ) -> Optional[Operation]:
        """Ignores `decay_var_list`, which tf.contrib.opt's apply_gradients replaces by None."""
        return super().minimize(*args[:_COMMON_ARGUMENTS], **kwargs)

    @staticmethod
    def _as_variables(decay_var_list: Iterable[Variable]) -> Optional[List[Variable]]:
        """Returns a list, or None (all variables) if it is empty; keeps partitioned variables."""
        return list(decay_var_list) or None

    def decays(self, variable: Variable) -> bool:
        """Whether a variable decays. Rows do not, unless the other base class sums equal ids."""
        if not super().decays(variable):
            return False
        return self._sums_equal_ids(variable) or not self._has_sparse_gradient(variable)

    def _sums_equal_ids(self, variable: Variable) -> bool:
        # tf.contrib.opt decays rows in _apply_sparse, which only V1Optimizer's method surely calls.
        prefix = "_resource" if is_resource(variable) else ""
        name = prefix + "_apply_sparse_duplicate_indices"
        # pyright does not know that `self` is an UpdateMethods, too.
        update = getattr(super(UpdateMethods, self), name)  # pyright: ignore[reportArgumentType]
        return update.__func__ is getattr(V1Optimizer, name)

    def _has_sparse_gradient(self, variable: Variable) -> bool:
        whole_of = versions.distributed_variable  # the variable with all replicas
        whole = whole_of(variable)
        grads = [grad for grad, each in self._step_pairs if whole_of(each) is whole]
        local_results = tf.distribute.get_strategy().experimental_local_results
        parts = [part for grad in grads for part in local_results(grad)]
        return any(isinstance(part, tf.IndexedSlices) for part in parts)


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
