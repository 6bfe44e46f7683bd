"""Describes the rule of a `RuleOptimizer` to `legacy_opt.native`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.rule_application import checked_results
from legacy_opt.core.slots import RowSlot, ScalarSlot, Slot
from legacy_opt.core.types import Variable
from legacy_opt.core.update import Addition, Fading
from legacy_opt.native.emit import emit
from legacy_opt.native.program import (
    ADD,
    ASSIGN,
    ELEMENT,
    FADE,
    GRADIENT,
    ROW,
    SCALAR,
    VALUE,
    Input,
    Program,
    UnsupportedError,
)
from legacy_opt.native.trace import Results, trace


class PureRule(NamedTuple):
    """The rule of an optimizer as a function of all its inputs, for the updates of a variable.

    Attributes:
      inputs: the inputs.
      rank: the rank of the variable.
      function: a function that takes a dict from inputs to tensors, and returns `Results`.
    """

    inputs: List[Input]
    rank: int
    function: Callable[[Dict[Input, Any]], Results]

    def program(self) -> Program:
        """Returns the traced rule. Raises an UnsupportedError if the rule cannot be compiled."""
        return trace(self.inputs, self.rank, self.function)


def rule_of(optimizer: Any, variable: Variable, sparse: bool) -> PureRule:
    """Returns the rule of an optimizer for the updates of a variable.

    Args:
      optimizer: the `RuleOptimizer`.
      variable: the variable.
      sparse: whether the gradient is sparse.

    Raises:
      UnsupportedError: the rule cannot be compiled. The message says why.
    """
    dtype = variable.dtype.base_dtype.name
    if variable.shape.rank is None:
        raise UnsupportedError(f"the rank of {variable.name!r} is unknown")
    run = optimizer.native_rule(variable, sparse)
    layouts = optimizer.slot_layouts(variable)
    slots = [
        Input(
            name,
            level_of(layout, variable, sparse),
            (layout.dtype or variable.dtype.base_dtype).name,
            is_slot=True,
        )
        for name, layout in layouts.items()
    ]
    scalars = [
        Input(name, SCALAR, tensor.dtype.base_dtype.name)
        for name, tensor in optimizer.scalars_of_step().items()
    ]
    grad_input, value_input = Input(GRADIENT, ELEMENT, dtype), Input(VALUE, ELEMENT, dtype)

    def rule(tensors: Dict[Input, Any]) -> Results:
        seen = {each.name: tensors[each] for each in slots}
        given = {each.name: tensors[each] for each in scalars}
        gradient, value = tensors[grad_input], tensors[value_input]
        with optimizer.with_scalars(given):
            hyper = optimizer.hyper_for(variable)
            result = run(gradient, value, SimpleNamespace(**seen), hyper)
        step, changes = checked_results(result, value, seen, variable, type(optimizer).__name__)
        changes = {name: _change(each) for name, each in changes.items() if each is not seen[name]}
        return Results(step, changes)

    return PureRule([grad_input, value_input, *slots, *scalars], variable.shape.rank, rule)


def source_of(optimizer: Any, dtype: Any, sparse: bool) -> str:
    """Returns the C source of the kernel with which an optimizer updates matrices.

    Args:
      optimizer: a new `RuleOptimizer`.
      dtype: the dtype of the matrices.
      sparse: whether the gradient is sparse.

    Raises:
      UnsupportedError: there is no kernel.
      WrongTypeError: the optimizer cannot train variables of this dtype.
    """
    with tf.Graph().as_default():
        tf.compat.v1.train.get_or_create_global_step()
        variable = tf.compat.v1.get_variable("w", [2, 2], dtype, use_resource=True)
        optimizer._create_slots([variable])
        optimizer._prepare()
        sparse = sparse and not optimizer.needs_whole_tensor(variable)
        return emit(rule_of(optimizer, variable, sparse).program())


def level_of(layout: Any, variable: Any, sparse: bool) -> int:
    """Returns the level of a slot: `SCALAR`, `ROW` or `ELEMENT`.

    Raises:
      UnsupportedError: kernels cannot have a slot of this layout.
    """
    if getattr(layout, "is_flat_element", False):
        # In a partition, the layout's method `add` changes several elements, which kernels cannot.
        if versions.part_of(variable) is not None:
            raise UnsupportedError(f"a {type(layout).__name__} of a partition")
        return ROW if sparse else SCALAR
    for known, level in (Slot, ELEMENT), (ScalarSlot, SCALAR), (RowSlot, ROW):
        is_possible = isinstance(layout, known) and (sparse or level != ROW)
        # Kernels do not call the methods of a layout, so they would ignore overridden methods.
        if is_possible and all(
            getattr(type(layout), name) is getattr(known, name)
            for name in ("read", "assign", "add")
        ):
            return level
    raise UnsupportedError(f"a slot of the layout {type(layout).__name__}")


def refuse_overridden(optimizer: Any, base: type, *names: str) -> None:
    """Raises an UnsupportedError if an optimizer's class overrides one of the named methods."""
    cls = type(optimizer)
    found = [name for name in names if getattr(cls, name) is not getattr(base, name)]
    if found:
        raise UnsupportedError(f"{cls.__name__} overrides {' and '.join(found)}")


def _change(change):
    if isinstance(change, Addition):
        return ADD, change.value, None
    if isinstance(change, Fading):
        return FADE, change.value, change.factor
    return ASSIGN, change, None
