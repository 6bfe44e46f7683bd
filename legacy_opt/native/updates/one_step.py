"""Updates variables by native kernels, in one training step of an optimizer."""

from __future__ import annotations

import collections
import contextlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import gradient_checks
from legacy_opt.core.kernel_hook import NO_KERNELS, StepKernels
from legacy_opt.core.types import GradAndVar, Tensor, Variable
from legacy_opt.core.variable_access import after, here, is_resource, on_any_device, variable_shape
from legacy_opt.native import settings
from legacy_opt.native.runtime import tensorflow_operations
from legacy_opt.native.updates import kernel_choice, norms
from legacy_opt.native.updates.averages import AverageFormulas
from legacy_opt.native.updates.scaling import identity_of, split_factors
from legacy_opt.programs.formulas import Formulas
from legacy_opt.programs.optimizers import formulas_of, overrides_updates
from legacy_opt.programs.program import UnsupportedError

# The operation that updates a group locks all its variables, and waits for all their gradients.
GROUP_BYTES = 4 << 20

# {(id, name) of a variable or average: whether a kernel has updated it}. None unless
# `legacy-opt run --native` counts the updated variables.
have_kernels: Optional[Dict[Tuple[int, str], bool]] = None


class _KernelUpdate(NamedTuple):
    """An update by a kernel; see `StepKernels.update`. `indices` may have duplicates."""

    formulas: Formulas
    kernel: Any
    grad: Tensor
    variable: Variable
    indices: Optional[Tensor]


def kernels_for(
    optimizer: Any, pairs: Optional[Sequence[GradAndVar]], base: Any, waits_for: Sequence[Any]
) -> StepKernels:
    """See `legacy_opt.core.kernel_hook.kernels_for`; raises errors like `settings.setting_of`."""
    if settings.setting_of(getattr(optimizer, "native", None)) == "off":
        return NO_KERNELS
    return NativeKernels(optimizer, pairs, base, waits_for)


class NativeKernels(StepKernels):
    """The native kernels of an optimizer in one training step; see `kernel_hook.kernels_for`.

    TensorFlow calls an update method, such as `_apply_dense`, for each variable. In the first of
    these calls, `start` runs the updates of all variables that need not wait for their own call.
    Small variables with dense gradients are updated in groups, by one operation per group. Sparse
    gradients may have duplicate ids, because the kernels sum the rows of equal ids.

    If a subclass or wrapper runs code before or after the update methods, each update waits for its
    own call.
    """

    are_on = True

    def __init__(
        self,
        optimizer: Any,
        pairs: Optional[Sequence[GradAndVar]],
        base: Any,
        waits_for: Sequence[Any],
    ) -> None:
        self._optimizer = optimizer
        self._base = base
        self._waits_for = waits_for
        self._native = getattr(optimizer, "native", None)
        if pairs is None or tf.distribute.has_strategy():
            pairs = ()
        self._waiting = [(grad, variable) for grad, variable in pairs if grad is not None]
        if have_kernels is not None:
            for _, variable in self._waiting:
                have_kernels.setdefault((id(variable), variable.name), False)
        self.has_started = not self._waiting
        self._done = {}

    def start(self) -> List[GradAndVar]:
        """Runs, once, the updates that need not wait; returns the pairs without a kernel."""
        self.has_started = True
        pairs, self._waiting = self._waiting, []
        optimizer = self._optimizer
        all_wait = not optimizer.updates_together or overrides_updates(optimizer, self._base)
        with after(*self._waits_for), on_any_device():
            self._done, without_kernel = _apply_together(formulas_of(optimizer), pairs, all_wait)
        return without_kernel

    def started(self, variable: Variable) -> Any:
        """Returns the operation by which `start` updates a variable; None when executing eagerly.

        The result is NotImplemented if `start` does not update the variable.
        """
        if not self.has_started:
            self.start()
        return self._done.get(id(variable), NotImplemented)

    def update(self, grad: Tensor, variable: Variable, indices: Optional[Tensor]) -> Any:
        """Updates a variable, or raises an UnsupportedError; see `StepKernels.update`."""
        done = self.started(variable)
        is_empty = versions.static_shape(variable).num_elements() == 0
        if done is not NotImplemented or is_empty:
            return done
        formulas = formulas_of(self._optimizer)  # new: scalars belong to the current graph
        if indices is not None and formulas.must_wait(variable):
            return NotImplemented
        with after(*self._waits_for):
            update = _update_or_none(formulas, grad, variable, indices)
            if update is None:
                return NotImplemented
            if _needs_dense(update):
                shape = tf.cast(variable_shape(variable), indices.dtype)
                dense = tf.scatter_nd(update.indices[:, tf.newaxis], update.grad, shape)
                update = update._replace(grad=dense, indices=None)
            return _run([update])

    def move_averages(
        self, averages: Sequence[Variable], values: Sequence[Tensor], rate: Tensor
    ) -> Tuple[List[Any], List[int]]:
        formulas = AverageFormulas(self._optimizer, rate)
        done, _ = _apply_together(formulas, list(zip(values, averages)), all_wait=False)
        operations = [each for each in dict.fromkeys(done.values()) if each is not None]
        # An average that occurs several times is not in `done`, even if there is a kernel.
        not_done = [
            i
            for i, average in enumerate(averages)
            if id(average) not in done and average.shape.num_elements() != 0
        ]
        return operations, not_done

    def warn_of_operations(self, what: str) -> None:
        if settings.setting_of(self._native) == "require":
            name = type(self._optimizer).__name__
            kernel_choice.warn_once(
                f"{name} {what} by TensorFlow operations, for which there is no native kernel."
            )

    def global_norm(self, tensors: Sequence[Tensor]) -> Optional[Tensor]:
        return norms.global_norm(tensors, self._native)


def _apply_together(
    formulas: Formulas, grads_and_vars: Sequence[Tuple[Any, Variable]], all_wait: bool
) -> Tuple[Dict[int, Any], List[GradAndVar]]:
    """Updates the variables that need not wait. If `all_wait`, only looks for kernels.

    Returns a dict from the ``id`` of each updated variable to its operation, and the pairs without
    a kernel.
    """
    occurrences = collections.Counter(id(variable) for _, variable in grads_and_vars)
    without_kernel = []
    groups = {}
    for grad, variable in grads_and_vars:
        if variable.shape.num_elements() == 0:
            continue
        sparse = isinstance(grad, tf.IndexedSlices)
        values, indices = (grad.values, grad.indices) if sparse else (grad, None)
        update = _update_or_none(formulas, values, variable, indices)
        if update is None:
            without_kernel.append((grad, variable))
            continue
        # An update that needs a dense gradient waits for the call of the update method. Before this
        # call, TensorFlow sums the rows of equal ids. (scatter_nd would add them in any order.)
        waits = sparse and (formulas.must_wait(variable) or _needs_dense(update))
        if not (waits or all_wait or occurrences[id(variable)] > 1):
            groups.setdefault(_group_key(update), []).append(update)
    done = {}
    for group in groups.values():
        for updates in _split(group):
            with tf.device(updates[0].variable.device):
                operation = _run(updates)
            done.update((id(each.variable), operation) for each in updates)
    return done, without_kernel


def _needs_dense(update: _KernelUpdate) -> bool:
    """Whether a sparse gradient must be made dense, because its kernel needs all elements."""
    if update.indices is None or not update.formulas.needs_whole_tensor(update.variable):
        return False
    return update.kernel.has_matrices or update.kernel.program.needs_all_elements


def _update_or_none(
    formulas: Formulas, grad: Tensor, variable: Variable, indices: Optional[Tensor]
) -> Optional[_KernelUpdate]:
    """Returns a `_KernelUpdate`; warns and returns None if there is no kernel."""
    optimizer = formulas.optimizer
    name = type(optimizer).__name__
    sparse = indices is not None
    try:
        kernel_choice.check_place(repr(variable.name), variable.device)
        if versions.is_dynamic_embedding(variable):
            raise UnsupportedError(f"{variable.name!r} is a dynamic embedding table")
        if not sparse:
            formulas, grad = split_factors(formulas, tf.convert_to_tensor(grad))
        kernel = kernel_choice.kernel_of(formulas, variable, sparse)
    except UnsupportedError as error:
        text = f"{name} runs without a native kernel: {error}"
        kernel_choice.go_on_without(text, optimizer.native)
        return None
    grad = here(gradient_checks.gradient(name, grad, variable, sparse))
    return _KernelUpdate(formulas, kernel, grad, variable, here(indices))


def _group_key(update: _KernelUpdate) -> Any:
    """Returns a key: a single operation can run all updates that have the same key."""
    variable = update.variable
    if update.indices is not None or _bytes(update) > GROUP_BYTES:
        return id(variable)  # no other update has this key
    factors = getattr(update.formulas, "factors", ())
    scalars = tuple(identity_of(factor.scalar) for factor in factors)
    # Two programs may have the same kernel, but read other scalars or slots.
    return update.kernel.identity, variable.device, is_resource(variable), scalars


def _bytes(update: _KernelUpdate) -> int:
    """Returns the size of the variable. A variable of unknown size counts as large."""
    count = update.variable.shape.num_elements()
    return GROUP_BYTES + 1 if count is None else count * update.variable.dtype.base_dtype.size


def _split(updates: List[_KernelUpdate]) -> Iterator[List[_KernelUpdate]]:
    """Splits updates into lists. Several updates in a list have at most `GROUP_BYTES` in total."""
    part, part_bytes = [], 0
    for update in updates:
        if part and part_bytes + _bytes(update) > GROUP_BYTES:
            yield part
            part, part_bytes = [], 0
        part.append(update)
        part_bytes += _bytes(update)
    yield part


def _run(updates: List[_KernelUpdate]) -> Any:
    """Runs several updates with the same kernel and the same scalars by one operation."""
    formulas, kernel, _, variable, indices = updates[0]
    optimizer = formulas.optimizer
    library = tensorflow_operations.load()
    variables = []
    for update in updates:
        if have_kernels is not None:
            have_kernels[id(update.variable), update.variable.name] = True
        variables.append(update.variable)
        for slot in kernel.inputs.all_slots:
            variables.append(optimizer.get_slot(update.variable, slot.name))
    tensors = [each.handle if is_resource(each) else versions.ref_of(each) for each in variables]
    scalars = formulas.scalars(variable.dtype.base_dtype)
    arguments = {
        "scalars": [scalars[each.name] for each in kernel.inputs.scalars],
        "gradients": [update.grad for update in updates],
        "use_locking": optimizer._use_locking,
    }
    if indices is not None:
        arguments.update(ids=indices, all_rows=formulas.needs_whole_tensor(variable))
        return tensorflow_operations.update(library, kernel, tensors, **arguments)
    by_name = settings.current().by_name
    names = [_resource_name(each) for each in tensors] if by_name else []
    if not by_name or None in names:
        return tensorflow_operations.update(library, kernel, tensors, **arguments)
    with contextlib.ExitStack() as stack:
        for each in tensors:  # the names are known only on the device of the resources
            stack.enter_context(each.graph.colocate_with(each.op))
        return tensorflow_operations.update(library, kernel, names, **arguments)


def _resource_name(tensor: Tensor) -> Optional[str]:
    """Returns the name of the resource behind a handle; None if the kernel must get the handle.

    In a function, kernels must get handles, by which TensorFlow orders a function's operations.
    """
    if getattr(tensor, "graph", None) is not tf.compat.v1.get_default_graph():
        return None
    if tensor.op.type != "VarHandleOp" or tensor.op.get_attr("container"):
        return None
    return tensor.op.get_attr("shared_name").decode()
