"""A mixin whose update methods try kernels before the update methods of a v1 optimizer."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ClassVar, Iterator, List, Optional, Sequence

import tensorflow as tf

from legacy_opt.core import duplicate_ids
from legacy_opt.core.contract import of_users
from legacy_opt.core.kernel_hook import NO_KERNELS, StepKernels, kernels_for
from legacy_opt.core.types import GradAndVar, Operation, Tensor, Variable
from legacy_opt.core.variable_access import Access, Rows, WholeVariable

v1 = tf.compat.v1.train


class UpdateMethods:
    """Mixin for a class with a v1 optimizer as another base class: updates call `_run_update`.

    The mixin has no constructor, so that it can be added to the class of an existing object.
    """

    native: Optional[str] = None  # as in RuleOptimizer
    updates_together: ClassVar[bool] = True  # as in RuleOptimizer
    # These attributes are set during a training step.
    _step_pairs: Sequence[GradAndVar] = ()
    _step_kernels: StepKernels = NO_KERNELS
    _step_waits_for: Sequence[Operation] = ()  # the operations that kernels must wait for

    @contextlib.contextmanager
    def applying(
        self, grads_and_vars: List[GradAndVar], global_step: Optional[Variable] = None
    ) -> Iterator[None]:
        """Scope of a training step, in which all pairs are known; see `RuleOptimizer.applying`."""
        with contextlib.ExitStack() as stack:
            if hasattr(super(), "applying"):
                stack.enter_context(super().applying(grads_and_vars, global_step))
            self._step_pairs = grads_and_vars
            try:
                yield
            finally:
                self._step_pairs = ()
                self._step_kernels = NO_KERNELS
                self._step_waits_for = ()

    def _prepare(self):
        super()._prepare()
        classes = type(self).__mro__
        # A user's apply_gradients may change the gradients after `applying` has got them.
        overriding = of_users(classes[classes.index(UpdateMethods) :], "apply_gradients")
        pairs = () if overriding else self._step_pairs
        self._step_kernels = kernels_for(self, pairs, UpdateMethods, self._step_waits_for)

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        return self._run_update(super()._apply_dense, grad, var, WholeVariable(), grad, var)

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        base = super()._resource_apply_dense
        return self._run_update(base, grad, handle, WholeVariable(), grad, handle)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: Variable) -> Any:
        rows = Rows(grad.indices)
        return self._run_update(super()._apply_sparse, grad.values, var, rows, grad, var)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        base = super()._resource_apply_sparse
        return self._run_update(base, grad, handle, Rows(indices), grad, handle, indices)

    def _apply_sparse_duplicate_indices(self, grad: tf.IndexedSlices, var: Variable) -> Any:
        base = super()._apply_sparse_duplicate_indices
        return self._run_update_of_duplicates(base, grad, var, grad, var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, handle: Variable, indices: Tensor
    ) -> Any:
        base = super()._resource_apply_sparse_duplicate_indices
        slices = tf.IndexedSlices(grad, indices)
        return self._run_update_of_duplicates(base, slices, handle, grad, handle, indices)

    def _run_update(
        self, base: Callable, grad: Tensor, variable: Variable, access: Access, *arguments: Any
    ) -> Any:
        """Updates a variable by a kernel; if there is none, by the update method `base`."""
        done = self._step_kernels.update(grad, variable, access.indices)
        return base(*arguments) if done is NotImplemented else done

    def _run_update_of_duplicates(
        self, base: Any, grad: tf.IndexedSlices, variable: Variable, *arguments: Any
    ) -> Any:
        """Updates a variable from `tf.IndexedSlices` with duplicate ids; see `_run_update`."""
        done = self._step_kernels.started(variable)
        if done is not NotImplemented:
            return done
        if base.__func__ is getattr(v1.Optimizer, base.__name__):
            # `base` sums the rows of equal ids, and calls this object's method without duplicates.
            return base(*arguments)
        if self._step_kernels.are_on:  # `StepKernels.update` accepts no duplicate ids
            summed = duplicate_ids.summed(grad)
            return self._run_update(base, summed.values, variable, Rows(summed.indices), *arguments)
        ids, _ = tf.unique(grad.indices)
        return self._run_update(base, grad.values, variable, Rows(ids), *arguments)
