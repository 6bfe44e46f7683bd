"""Updates variables with compiled (native) kernels, if the user has enabled kernels."""

from __future__ import annotations

import collections
import contextlib
import weakref
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import gradient_checks, native_check
from legacy_opt.core.native_rules import PureRule, PureUpdate, rule_of
from legacy_opt.core.native_scaling import identity_of, unscaled
from legacy_opt.core.types import GradAndVar, Tensor, Variable
from legacy_opt.core.user_warnings import NativeKernelWarning, warn
from legacy_opt.core.variable_access import here, is_resource, on_any_device, variable_shape
from legacy_opt.native import driver, kernels, modes
from legacy_opt.native.emit import emit
from legacy_opt.native.program import UnsupportedError

# The largest total size of the small variables that one operation updates together. There is a
# limit, because the operation locks all these variables and waits for all their gradients.
GROUP_BYTES = 4 << 20

# The largest number of kernels that are made for one variable. There is a limit, because a rule may
# read an attribute that has another value in each step, and each value needs its own kernel.
MOST_KERNELS = 100

# The methods by which TensorFlow's v1 optimizers update variables.
UPDATE_METHODS = (
    "_apply_dense",
    "_apply_sparse",
    "_apply_sparse_duplicate_indices",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
)

_warned = set()
# The traced updates of each optimizer, by `_place`. They are not stored in an attribute of the
# optimizer, because an optimizer with such an attribute could not be copied.
_traced = weakref.WeakKeyDictionary()
_admitted: Dict[Any, Any] = {}  # the kernel of each program, or why there is none


class _Traced(NamedTuple):
    """The kernel of one variable's update, as long as nothing that it depends on changes.

    Attributes:
      variable: a weak reference to the variable.
      values: what the rule may have read in Python (see `native_attributes.values_of`).
      kernel: the `Kernel`; a text that says why, if there is none.
      kernels_made: the number of kernels that were made for the variable, one after the other.
    """

    variable: Any
    values: Any
    kernel: Any
    kernels_made: int


class _Update(NamedTuple):
    """An update of a variable by a kernel.

    Attributes:
      pure: the `PureUpdate`.
      kernel: the `Kernel` of this update.
      grad: the gradient; for a sparse gradient, its rows.
      variable: the variable.
      indices: the row numbers of a sparse gradient, possibly with duplicates; None for a dense
        gradient.
    """

    pure: PureUpdate
    kernel: Any
    grad: Tensor
    variable: Variable
    indices: Optional[Tensor]


def are_enabled(optimizer: Any) -> bool:
    """Whether the user has enabled kernels for an optimizer with the attribute `native`."""
    return modes.mode_of(optimizer.native) != "off"


def apply(update: PureUpdate, grad: Tensor, variable: Variable, indices: Optional[Tensor]) -> Any:
    """Updates a variable with a compiled kernel, if the user has enabled kernels.

    Args:
      update: the optimizer's update.
      grad: the gradient; for a sparse gradient, its rows.
      variable: the variable.
      indices: the row numbers of a sparse gradient, without duplicates; None for a dense gradient.

    Returns:
      The operation (None when executing eagerly); NotImplemented if there is no kernel.

    Raises:
      UnsupportedError: there is no kernel, and the optimizer's mode is "require".
    """
    if not are_enabled(update.optimizer):
        return NotImplemented
    found = _update_or_none(update, grad, variable, indices)
    if found is None:
        return NotImplemented
    if _needs_dense(found):
        shape = tf.cast(variable_shape(variable), indices.dtype)
        dense = tf.scatter_nd(found.indices[:, tf.newaxis], found.grad, shape)
        found = found._replace(grad=dense, indices=None)
    return _run([found])


def apply_together(
    update: PureUpdate, grads_and_vars: List[GradAndVar]
) -> Tuple[List[Any], List[GradAndVar]]:
    """Updates variables with dense gradients; one operation updates several small variables.

    Args:
      update: the update of an optimizer for which the user has enabled kernels.
      grads_and_vars: list of (gradient, variable) pairs.

    Returns:
      A list of operations (empty when executing eagerly), and a list of the pairs that were not
      applied, because there is no kernel, or because several pairs have the same variable.

    Raises:
      UnsupportedError: see `apply`.
    """
    done, _ = _apply_together(update, grads_and_vars, alone=False)
    # Variables that occur in several pairs have not been updated, either.
    others = [
        (grad, variable)
        for grad, variable in grads_and_vars
        if id(variable) not in done and variable.shape.num_elements() != 0
    ]
    return [each for each in dict.fromkeys(done.values()) if each is not None], others


class NativeStep:
    """The updates by native kernels in one training step.

    TensorFlow calls an update method, such as `_apply_dense`, for each variable. In the first of
    these calls, `start` runs the updates of all variables that need not wait for their own call.
    Small variables with dense gradients are updated in groups, by one operation per group. Sparse
    gradients may have duplicate ids, because the kernels sum the rows of equal ids.

    If a subclass or wrapper runs code before or after the update methods, each update waits for its
    own call.

    Args:
      optimizer: an optimizer for which the user has enabled kernels.
      base: the base class of the optimizer whose update methods use this object.
      grads_and_vars: the (gradient, variable) pairs of the step.
    """

    def __init__(self, optimizer: Any, base: type, grads_and_vars: Iterable[GradAndVar]) -> None:
        self._update = optimizer.pure_update()
        self._waiting = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        self._alone = not optimizer.updates_together or any(
            getattr(getattr(optimizer, name), "__func__", None) is not getattr(base, name)
            for name in UPDATE_METHODS
        )
        self._done = {}
        self.has_started = False

    def start(self) -> List[GradAndVar]:
        """Runs the updates that need not wait. Call this method once.

        Returns:
          The (gradient, variable) pairs for which there is no kernel.

        Raises:
          UnsupportedError: see `apply`.
        """
        self.has_started = True
        pairs, self._waiting = self._waiting, []
        with on_any_device():
            self._done, others = _apply_together(self._update, pairs, self._alone)
        return others

    def operation(self, variable: Variable) -> Any:
        """Returns the operation by which `start` updates a variable; None when executing eagerly.

        The result is NotImplemented if `start` does not update the variable.
        """
        return self._done.get(id(variable), NotImplemented)


def _apply_together(update, grads_and_vars, alone):
    """Updates variables as `NativeStep` does.

    Returns:
      A dict from the ``id`` of each updated variable to its operation, and the list of the pairs
      for which there is no kernel.
    """
    uses = collections.Counter(id(variable) for _, variable in grads_and_vars)
    groups, done, others = {}, {}, []
    for grad, variable in grads_and_vars:
        if variable.shape.num_elements() == 0:
            continue
        sparse = isinstance(grad, tf.IndexedSlices)
        values, indices = (grad.values, grad.indices) if sparse else (grad, None)
        found = _update_or_none(update, values, variable, indices)
        if found is None:
            others.append((grad, variable))
            continue
        # Such an update waits for the call of its update method, because TensorFlow sums the rows
        # of equal ids before this call. (scatter_nd in `apply` would add these rows in any order.)
        waits = sparse and (update.must_wait(variable) or _needs_dense(found))
        if not (waits or alone or uses[id(variable)] > 1):
            groups.setdefault(_group(found), []).append(found)
    for updates in groups.values():
        for part in _parts(updates):
            with tf.device(part[0].variable.device):
                operation = _run(part)
            done.update((id(each.variable), operation) for each in part)
    return done, others


def _needs_dense(update):
    """Whether a sparse gradient must be made dense, because its kernel needs all elements."""
    whole = update.indices is not None and update.pure.needs_whole_tensor(update.variable)
    return whole and update.kernel.program.needs_all_elements


def _update_or_none(pure, grad, variable, indices):
    """Returns an `_Update`; warns and returns None if there is no kernel."""
    optimizer = pure.optimizer
    name, sparse = type(optimizer).__name__, indices is not None
    try:
        check_place(repr(variable.name), variable.device)
        _check_kind(variable)
        if not sparse:
            pure, grad = unscaled(pure, tf.convert_to_tensor(grad))
        kernel = _kernel(pure, variable, sparse)
    except UnsupportedError as error:
        go_on_without(f"{name} runs without a native kernel: {error}", optimizer.native)
        return None
    grad = here(gradient_checks.gradient(name, grad, variable, sparse))
    return _Update(pure, kernel, grad, variable, here(indices))


def go_on_without(text: str, native: Optional[str]) -> None:
    """Warns once that there is no native kernel.

    Args:
      text: the warning.
      native: the attribute `native` of the optimizer.

    Raises:
      UnsupportedError: kernels are required.
    """
    if modes.mode_of(native) == "require":
        raise UnsupportedError(text) from None
    _warn_once(text)


def warn_of_operations(wrapper: Any, what: str) -> None:
    """Warns once that a wrapper also runs TensorFlow operations, if kernels are required.

    Args:
      wrapper: the wrapper, an optimizer around another optimizer, with the attribute `native`.
      what: what the wrapper does by TensorFlow operations, for example "clips values".
    """
    if modes.mode_of(wrapper.native) == "require":
        name = type(wrapper).__name__
        _warn_once(f"{name} {what} by TensorFlow operations, for which there is no native kernel.")


def _warn_once(text):
    if text not in _warned:
        _warned.add(text)
        warn(text, NativeKernelWarning)


def check_place(name: str, device: Optional[str]) -> None:
    """Checks that kernels can run on a device, and in the code that is being built.

    Args:
      name: the variable or gradient on the device, for error messages.
      device: the device; None or "" if unknown.

    Raises:
      UnsupportedError: kernels cannot run on the device or in this code.
    """
    if versions.compiling_with_xla():
        raise UnsupportedError("XLA compiles this function")
    if tf.distribute.has_strategy():
        raise UnsupportedError("a tf.distribute.Strategy distributes the training")
    if tf.DeviceSpec.from_string(device or "").device_type not in (None, "CPU"):
        raise UnsupportedError(f"{name} is on {device}; kernels run on CPUs")
    if _is_remote(device) and modes.target_of_sessions() is None:
        raise UnsupportedError(
            f"{name} is on {device}, in another process: pass the target of your sessions, as in "
            "legacy_opt.native.enable(target=server.target)"
        )


def _check_kind(variable):
    """Raises an UnsupportedError if kernels cannot update this kind of variable."""
    if versions.is_dynamic_embedding(variable):
        raise UnsupportedError(f"{variable.name!r} is a dynamic embedding table")


def _is_remote(device):
    """Whether a device is in another process."""
    return tf.DeviceSpec.from_string(device or "").job not in (None, "localhost")


def _kernel(update, variable, sparse):
    driver.load()  # first, because a missing driver is the error that users can correct
    optimizer = update.optimizer
    scalars = update.scalars(variable.dtype.base_dtype)
    dtypes = tuple((name, each.dtype.base_dtype.name) for name, each in scalars.items())
    place = id(variable), sparse, update.kind(variable), dtypes
    known = _traced.setdefault(optimizer, {})
    found = known.get(place)
    if found is not None and found.variable() is not variable:
        found = None  # of an earlier variable with the same id
    if found is None or found.values != update.attributes():
        made, admitted_before = 0 if found is None else found.kernels_made, len(_admitted)
        try:
            if made >= MOST_KERNELS:
                raise UnsupportedError(
                    "the rule reads an attribute that changes from step to step, and each value "
                    "needs another kernel: make the attribute a hyperparameter"
                )
            kernel = admitted(rule_of(update, variable, sparse))
        except UnsupportedError as error:
            kernel = str(error)  # the error itself would keep its frames alive
        reference = weakref.ref(variable, lambda _: known.pop(place, None))
        made += len(_admitted) - admitted_before
        found = known[place] = _Traced(reference, update.attributes(again=True), kernel, made)
    if isinstance(found.kernel, str):
        raise UnsupportedError(found.kernel)
    check_process(found.kernel, variable.device)
    return found.kernel


def admitted(rule: PureRule) -> kernels.Kernel:
    """Compiles, checks and registers the kernel of a rule.

    Raises:
      UnsupportedError: there is no driver, or the rule has no kernel.
    """
    loaded, program = driver.load(), rule.program()
    key = emit(program), *program.names
    if key not in _admitted:
        try:
            kernel = kernels.compiled(program)
            native_check.check(kernel, rule.inputs, rule.shape, rule.function)
            driver.register(loaded, kernel)
            _admitted[key] = kernel
        except UnsupportedError as error:
            _admitted[key] = str(error)
    if isinstance(_admitted[key], str):
        raise UnsupportedError(_admitted[key])
    return _admitted[key]


def check_process(kernel: kernels.Kernel, device: Optional[str]) -> None:
    """Raises an UnsupportedError if `device` is in another process that lacks the kernel."""
    if _is_remote(device):
        driver.check_server(driver.load(), kernel.key, device, modes.target_of_sessions())


def _group(update):
    """Returns a key: a single operation can run all updates that have the same key."""
    variable = update.variable
    if update.indices is not None or _bytes(update) > GROUP_BYTES:
        return id(variable)
    factors = getattr(update.pure, "factors", ())
    scalars = tuple(identity_of(factor.scalar) for factor in factors)
    # Two programs may have the same kernel, but read other scalars or slots.
    names = update.kernel.program.names
    return update.kernel.key, names, variable.device, is_resource(variable), scalars


def _bytes(update):
    count = update.variable.shape.num_elements()
    return GROUP_BYTES + 1 if count is None else count * update.variable.dtype.base_dtype.size


def _parts(updates):
    """Splits updates into lists. Several updates in a list have at most `GROUP_BYTES` in total."""
    part, size = [], 0
    for update in updates:
        if part and size + _bytes(update) > GROUP_BYTES:
            yield part
            part, size = [], 0
        part.append(update)
        size += _bytes(update)
    yield part


def _run(updates):
    """Runs several updates with the same kernel and the same scalars by one operation."""
    pure, kernel, grad, variable, indices = updates[0]
    optimizer = pure.optimizer
    slots = [each.name for each in kernel.program.all_slots]
    tensors = [
        _handle(each)
        for update in updates
        for each in [
            update.variable,
            *(optimizer.get_slot(update.variable, name) for name in slots),
        ]
    ]
    scalars = pure.scalars(variable.dtype.base_dtype)
    given = {
        "scalars": [scalars[each.name] for each in kernel.program.scalars],
        "use_locking": optimizer._use_locking,
    }
    if indices is not None:
        given.update(gradient=grad, ids=indices, all_rows=pure.needs_whole_tensor(variable))
        return driver.update_rows(driver.load(), kernel, tensors, **given)
    given["gradients"] = [update.grad for update in updates]
    names = [_resource_name(each) for each in tensors] if modes.is_by_name() else [None]
    if None in names:
        return driver.update(driver.load(), kernel, tensors, **given)
    with contextlib.ExitStack() as stack:
        for each in tensors:  # on the device whose resources have these names
            stack.enter_context(each.graph.colocate_with(each.op))
        return driver.update(driver.load(), kernel, names, **given)


def _resource_name(tensor):
    """Returns the name of the resource variable with a handle; None if it has no such name here.

    A function needs the handle, because TensorFlow orders the operations of a function by their
    handles.
    """
    if getattr(tensor, "graph", None) is not tf.compat.v1.get_default_graph():
        return None
    if tensor.op.type != "VarHandleOp" or tensor.op.get_attr("container"):
        return None
    return tensor.op.get_attr("shared_name").decode()


def _handle(variable):
    return variable.handle if is_resource(variable) else versions.ref_of(variable)
