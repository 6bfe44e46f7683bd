"""A mixin that runs a v1 optimizer's updates by native kernels, if there are such kernels."""

from __future__ import annotations

import contextlib
from typing import ClassVar, Iterator, List, Optional

import tensorflow as tf

from legacy_opt.core import duplicate_ids, native_updates
from legacy_opt.core.native_rules import NoUpdate, PureUpdate
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.types import GradAndVar, Variable
from legacy_opt.core.variable_access import Rows, WholeVariable
from legacy_opt.optimizers import stock_rules

v1 = tf.compat.v1.train


class KernelsFirst:
    """Mixin that tries native kernels before the update methods of the other base classes.

    The mixin has no constructor, so that `accelerate` can change the class of an existing object.
    """

    native: Optional[str] = None  # as in RuleOptimizer
    updates_together: ClassVar[bool] = True  # as in RuleOptimizer
    # These attributes are set during a training step. `_pairs` contains all (gradient, variable)
    # pairs, and `_native_step` runs the updates by kernels.
    _pairs = ()
    _native_step = None

    @contextlib.contextmanager
    def applying(
        self, grads_and_vars: List[GradAndVar], global_step: Optional[Variable] = None
    ) -> Iterator[None]:
        """Scope of a training step, in which `_prepare` passes all gradients to kernels.

        `apply_gradients` and the Keras optimizers of `legacy_opt.compat.to_keras` enter this scope.

        Args:
          grads_and_vars: list of (gradient, variable) pairs.
          global_step: the variable that will be incremented, or None.
        """
        with contextlib.ExitStack() as stack:
            if hasattr(super(), "applying"):
                stack.enter_context(super().applying(grads_and_vars, global_step))
            self._pairs = grads_and_vars
            try:
                yield
            finally:
                self._pairs, self._native_step = (), None

    def _prepare(self):
        super()._prepare()
        if self._pairs and native_updates.are_enabled(self) and not tf.distribute.has_strategy():
            self._native_step = native_updates.NativeStep(self, KernelsFirst, self._pairs)

    def _apply_dense(self, grad, var):
        return self._update(super()._apply_dense, grad, var, WholeVariable(), grad, var)

    def _resource_apply_dense(self, grad, handle):
        base = super()._resource_apply_dense
        return self._update(base, grad, handle, WholeVariable(), grad, handle)

    def _apply_sparse(self, grad, var):
        rows = Rows(grad.indices)
        return self._update(super()._apply_sparse, grad.values, var, rows, grad, var)

    def _resource_apply_sparse(self, grad, handle, indices):
        base = super()._resource_apply_sparse
        return self._update(base, grad, handle, Rows(indices), grad, handle, indices)

    def _apply_sparse_duplicate_indices(self, grad, var):
        base = super()._apply_sparse_duplicate_indices
        return self._update_duplicates(base, grad, var, grad, var)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        base = super()._resource_apply_sparse_duplicate_indices
        slices = tf.IndexedSlices(grad, indices)
        return self._update_duplicates(base, slices, handle, grad, handle, indices)

    def _update(self, base, grad, variable, access, *arguments):
        """Updates a variable by a native kernel, or by `base` if there is no kernel.

        Args:
          base: the update method of the other base classes.
          grad: the gradient; for a sparse gradient, the tensor of its values.
          variable: the variable.
          access: the part of the variable to update: `WholeVariable` or `Rows`.
          *arguments: the arguments of `base`.
        """
        done = self._native_operation(variable)
        if done is NotImplemented:
            done = native_updates.apply(self.pure_update(), grad, variable, access.indices)
        return base(*arguments) if done is NotImplemented else done

    def _update_duplicates(self, base, grad, variable, *arguments):
        """Updates a variable from `tf.IndexedSlices` with duplicate ids; see `_update`."""
        done = self._native_operation(variable)
        if done is not NotImplemented:
            return done
        if base.__func__ is getattr(v1.Optimizer, base.__name__):
            # `base` sums the rows of equal ids, then calls _apply_sparse or _resource_apply_sparse
            # of this class.
            return base(*arguments)
        if native_updates.are_enabled(self):  # `native_updates.apply` accepts no duplicate ids
            one_each = duplicate_ids.summed(grad)
            ids, values = one_each.indices, one_each.values
        else:
            ids, values = tf.unique(grad.indices)[0], grad.values
        return self._update(base, values, variable, Rows(ids), *arguments)

    def _native_operation(self, variable):
        """Returns the result of `NativeStep.operation`; NotImplemented without a `NativeStep`."""
        if self._native_step is None:
            return NotImplemented
        if not self._native_step.has_started:
            self._native_step.start()
        return self._native_step.operation(variable)

    def pure_update(self) -> PureUpdate:
        """Returns the update from which native kernels are generated."""
        classes = type(self).__mro__
        cls = _updating_class(classes[classes.index(KernelsFirst) + 1 :])
        if cls in stock_rules.RULES:
            return stock_rules.StockUpdate(self, stock_rules.RULES[cls])
        if cls is RuleOptimizer:
            return super().pure_update()
        return NoUpdate(self, f"{cls.__name__} has update methods of its own")


def has_rule(optimizer_class: type) -> bool:
    """Whether a class inherits its update methods from a TensorFlow optimizer in `RULES`."""
    return _updating_class(optimizer_class.__mro__) in stock_rules.RULES


def _updating_class(classes):
    methods = (*native_updates.UPDATE_METHODS, "_apply_sparse_shared")  # the last is in Adam only
    return stock_rules.updating_class(classes, methods)
