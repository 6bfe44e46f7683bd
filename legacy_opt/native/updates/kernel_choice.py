"""Chooses the kernel of each variable's update, or finds out why there is none."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import Variable
from legacy_opt.core.user_warnings import NativeKernelWarning, warn
from legacy_opt.native import settings
from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.compiler.inputs import inputs_of
from legacy_opt.native.runtime import compiled_kernels, tensorflow_operations
from legacy_opt.native.updates import check
from legacy_opt.programs.formulas import Formulas, PureUpdate
from legacy_opt.programs.optimizers import formulas_of
from legacy_opt.programs.program import UnsupportedError

# Per variable: a rule may read an attribute that changes in each step, and needs a new kernel.
MOST_KERNELS = 100

_warned = set()
# {optimizer: {key of an update: `_Choice`}}. The choices are not in an attribute of the optimizer,
# because an optimizer with such an attribute could not be copied.
_choices = weakref.WeakKeyDictionary()
_checked_kernels: Dict[Any, Any] = {}  # {key of a program: its kernel, or why there is none}


class _Choice(NamedTuple):
    """The kernel of one variable's update, as long as nothing that it depends on changes."""

    variable: Any  # a weak reference
    dependencies: Any  # the `Dependencies` of the formula
    kernel: Any  # a `Kernel`, or a text that says why there is none
    kernels_made: int  # for the variable so far


def kernel_of(formulas: Formulas, variable: Variable, sparse: bool) -> compiled_kernels.Kernel:
    """Returns a variable's kernel, traced again after changes. Raises an UnsupportedError."""
    tensorflow_operations.load()  # before `_choices`: a user can correct the error
    dependencies = formulas.dependencies(variable)
    key = id(variable), sparse, dependencies.flags, dependencies.dtypes
    choices = _choices.setdefault(formulas.optimizer, {})
    choice = choices.get(key)
    if choice is not None and choice.variable() is not variable:
        choice = None  # it belongs to an earlier variable with the same id
    if choice is None or choice.dependencies != dependencies:
        kernels_made = 0 if choice is None else choice.kernels_made
        count_before = len(_checked_kernels)
        try:
            if kernels_made >= MOST_KERNELS:
                raise UnsupportedError(
                    "the rule reads an attribute that changes from step to step, and each value "
                    "needs another kernel: make the attribute a hyperparameter"
                )
            kernel = checked_kernel(formulas.formula_of(variable, sparse))
        except UnsupportedError as error:
            kernel = str(error)  # the error itself would keep its frames alive
        reference = weakref.ref(variable, lambda _: choices.pop(key, None))
        kernels_made += len(_checked_kernels) - count_before
        # Read again, because the rule may have set attributes.
        dependencies = formulas.dependencies(variable, again=True)
        choice = _Choice(reference, dependencies, kernel, kernels_made)
        choices[key] = choice
    if isinstance(choice.kernel, str):
        raise UnsupportedError(choice.kernel)
    check_process(choice.kernel, variable.device)
    return choice.kernel


def checked_kernel(formula: PureUpdate) -> compiled_kernels.Kernel:
    """Compiles, checks and registers the kernel of a formula, or raises an UnsupportedError."""
    library = tensorflow_operations.load()
    program = formula.program()
    key = (emit(program, formula.slots), *inputs_of(program, formula.slots).names)
    if key not in _checked_kernels:
        try:
            kernel = compiled_kernels.compiled(program, formula.slots)
            check.check(kernel, formula.inputs, formula.shape, formula.function)
            tensorflow_operations.register(library, kernel)
            _checked_kernels[key] = kernel
        except UnsupportedError as error:
            _checked_kernels[key] = str(error)
    if isinstance(_checked_kernels[key], str):
        raise UnsupportedError(_checked_kernels[key])
    return _checked_kernels[key]


def source_of(
    make: Callable[[], Any],
    dtype: Any,
    sparse: bool,
    shape: Sequence[int] = (2, 2),
    change: Callable[[Formulas], Formulas] = lambda formulas: formulas,
) -> str:
    """Returns the C source of the kernel with which an optimizer updates a variable.

    `make` creates the optimizer, in a new graph with a global step. The variable's name is "w".
    `change` takes the optimizer's formulas, and returns the formulas to compile. Raises an
    UnsupportedError if there is no kernel, and a WrongTypeError if the optimizer cannot train
    variables of this dtype.
    """
    with tf.Graph().as_default():
        tf.compat.v1.train.get_or_create_global_step()
        optimizer = make()
        variable = tf.compat.v1.get_variable("w", shape, dtype, use_resource=True)
        optimizer._create_slots([variable])
        optimizer._prepare()
        formula = change(formulas_of(optimizer)).formula_of(variable, sparse)
        return emit(formula.program(), formula.slots)


def check_place(name: str, device: Optional[str]) -> None:
    """Raises an UnsupportedError if kernels cannot run on a device, or in the code being built.

    `name` is the variable or gradient on the device, for messages. The device may be unknown.
    """
    if versions.compiling_with_xla():
        raise UnsupportedError("XLA compiles this function")
    if tf.distribute.has_strategy():
        raise UnsupportedError("a tf.distribute.Strategy distributes the training")
    if tf.DeviceSpec.from_string(device or "").device_type not in (None, "CPU"):
        raise UnsupportedError(f"{name} is on {device}; kernels run on CPUs")
    if device and _is_remote(device) and settings.current().target is None:
        raise UnsupportedError(
            f"{name} is on {device}, in another process: pass the target of your sessions, as in "
            "legacy_opt.native.enable(target=server.target)"
        )


def check_process(kernel: compiled_kernels.Kernel, device: Optional[str]) -> None:
    """Raises an UnsupportedError if `device` is in another process that lacks the kernel."""
    if device and _is_remote(device):
        process = device.partition("/device:")[0]
        target = settings.current().target
        operations = tensorflow_operations.load().operations
        reason = tensorflow_operations.missing_in_process(operations, kernel.key, process, target)
        if reason:
            raise UnsupportedError(reason)


def _is_remote(device: str) -> bool:
    """Whether a device is in another process."""
    return tf.DeviceSpec.from_string(device).job not in (None, "localhost")


def go_on_without(text: str, native: Optional[str]) -> None:
    """Warns once that there is no kernel; if kernels are required, raises an UnsupportedError."""
    if settings.setting_of(native) == "require":
        raise UnsupportedError(text) from None
    warn_once(text)


def warn_once(text: str) -> None:
    """Issues a `NativeKernelWarning`, if the same warning has not been issued before."""
    if text not in _warned:
        _warned.add(text)
        warn(text, NativeKernelWarning)
