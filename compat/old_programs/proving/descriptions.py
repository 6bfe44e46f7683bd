"""Describes the optimizer of an update: its rule if it can be recorded, and its state."""

from __future__ import annotations

import contextlib
import copy
import inspect
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import recorded
from legacy_opt.core import argument_checks, contract
from legacy_opt.core.shortened import quoted
from legacy_opt.core.types import Variable
from legacy_opt.native.updates.acceleration import accelerate
from legacy_opt.programs.operations import DTYPES
from legacy_opt.programs.program import Function
from legacy_opt.recorded.arrays.interpreter import stored_shape
from legacy_opt.recorded.proofs.proof import ProofError
from legacy_opt.recorded.records import (
    ELEMENT,
    ROW,
    SCALAR,
    Group,
    Record,
    RecordError,
    Scalar,
    Slot,
)
from legacy_opt.recorded.state_files import GLOBAL_STEP, SHARED, VARIABLE, slot_key

from .updates import Update

_NOTHING = Function((), {})


class Description(NamedTuple):
    """The optimizer of an update.

    Attributes:
      record: its rule; if this cannot be recorded, a record without updates.
      reason: why the rule cannot be recorded, else "".
      hyperparameters: the tensors of those that are no numbers, by their names.
      state: the variables of the state, by their names in a state file.
    """

    record: Record
    reason: str
    hyperparameters: Mapping[str, Any]
    state: Mapping[str, Any]


def description(
    update: Update, variables: Mapping[str, Variable], record: Optional[Record] = None
) -> Description:
    """Describes the optimizer of an update, and how it trains some variables.

    If a `record` is given, the rule is not recorded again. Raises a ProofError if it has a slot
    that the optimizer lacks.
    """
    optimizer = update.optimizer
    try:
        record = _record(update, variables) if record is None else _whole(record, variables)
        reason = next((str(each.dense) for each in record.groups if not each.programs), "")
        names = [name for name, each in record.hyperparameters.items() if each.value is None]
        tensors = {name: _tensor(optimizer, name) for name in names}
        shared = {name: _shared(update, name) for name in record.shared}
        slots = {
            name: {
                slot: optimizer.get_slot(each, slot) for slot in group_of(record, name, each).slots
            }
            for name, each in variables.items()
        }
        missing = [slot for found in slots.values() for slot, each in found.items() if each is None]
        if missing and reason:
            raise RecordError(reason)
        if missing:
            raise ProofError(
                f"{type(optimizer).__name__} has no slots {quoted(sorted({*missing}))}"
            )
        if record.global_step is not None and not isinstance(update.global_step, tf.Variable):
            raise RecordError("its global step is no variable")
    except ProofError:
        raise
    except RecordError as error:
        reason = " ".join(str(error).split())
        slots = {name: dict(_slots(update, each)) for name, each in variables.items()}
        shared = dict(_shared_by_name(update, slots))
        record, tensors = _without_rule(update, reason, variables, slots, shared)
    state = {VARIABLE + name: each for name, each in variables.items()}
    state.update((slot_key(n, s), each) for n in slots for s, each in slots[n].items())
    state.update((SHARED + name, each) for name, each in shared.items())
    if isinstance(update.global_step, tf.Variable):
        state[GLOBAL_STEP] = update.global_step
    return Description(record, reason, tensors, state)


def _record(update: Update, variables: Mapping[str, Variable]) -> Record:
    for name, each in variables.items():
        if getattr(each, "constraint", None) is not None:
            raise RecordError(f"{name!r} has a constraint")
    shapes = {name: shape_of(each) for name, each in variables.items()}
    optimizer = copy.copy(update.optimizer)
    if hasattr(optimizer, "_rule_step"):
        optimizer._rule_step = optimizer._rule_step.after()
    cls = type(optimizer)
    if "compute_gradients" in vars(cls) and contract.is_of_user(cls):  # it came before gradients
        skipped = ["compute_gradients", "__dict__", "__weakref__"]
        own = {name: each for name, each in vars(cls).items() if name not in skipped}
        optimizer.__class__ = type(cls.__name__, cls.__bases__, own)
    try:
        if ".contrib.opt." in type(optimizer).__module__:  # our class follows more hyperparameters
            vars(optimizer).update(_slots={}, _non_slot_dict={})
            optimizer = accelerate(optimizer)
        if update.decayed is not None:
            decayed = [name for name in update.decayed if name in shapes]
            return recorded.record(optimizer, shapes, decay_var_list=decayed)
        with contextlib.suppress(RecordError):  # the rule may depend on names or shapes
            return recorded.record(optimizer)
        return recorded.record(optimizer, shapes)
    except RecordError:
        raise
    except Exception as error:  # a user's class may raise anything
        raise RecordError(f"{type(error).__name__}: {error}") from error


def _whole(record: Record, variables: Mapping[str, Variable]) -> Record:
    """Returns a record with the shapes of whole variables, of which it may have some rows."""
    groups = []
    for each in record.groups:
        if each.variables is not None:
            each = each._replace(variables={n: shape_of(variables[n]) for n in each.variables})
        groups.append(each)
    return record._replace(groups=tuple(groups))


def _tensor(optimizer: Any, name: str) -> Any:
    """Returns the tensor of a hyperparameter in the training step."""
    step = getattr(optimizer, "_rule_step", None)  # of a RuleOptimizer
    if step is not None and name in step.tensors:
        return step.tensors[name]
    rate = ["_lr_t", "_learning_rate_tensor"] if name == "learning_rate" else []
    for attribute in (*rate, f"_{name}_t", f"_{name}_tensor", f"_{name}", name):
        value = getattr(optimizer, attribute, None)
        if argument_checks.is_tensor_like(value):
            return value
    raise RecordError(f"its hyperparameter {name!r} is neither a number nor a tensor")


def _shared(update: Update, name: str) -> Any:
    found = update.optimizer._get_non_slot_variable(name, graph=update.operation.graph)
    if found is None:
        raise RecordError(f"it has no shared variable {name!r}")
    return found


def group_of(record: Record, name: str, variable: Variable) -> Group:
    """Returns the group of a variable."""
    return record.group_of(name, shape_of(variable))


def shape_of(variable: Variable) -> Tuple[int, ...]:
    """Returns the shape of a variable, which is fully defined."""
    return tuple(int(each) for each in variable.shape.as_list() if each is not None)


def arguments_of(optimizer: Any) -> Dict[str, Any]:
    """Returns the constants among the constructor's arguments, as far as the optimizer has them."""
    found = {}
    for name in inspect.signature(type(optimizer).__init__).parameters:
        value = _argument(optimizer, name)
        values = value if isinstance(value, (list, tuple)) else [value]
        is_text = all(isinstance(each, str) for each in values)
        if is_text or type(value) in (bool, int) or (type(value) is float and np.isfinite(value)):
            found[name] = value
    return found


def _argument(optimizer: Any, name: str) -> Any:
    """Returns what an optimizer keeps of an argument of its constructor, or None."""
    short = ["_lr"] if name == "learning_rate" else []  # of Adam
    found = (vars(optimizer).get(each) for each in ("_" + name, name, *short))
    return next((each for each in found if each is not None), None)


# Optimizers without a rule:


def without_updates(record: Record, reason: str) -> Record:
    """Returns a record that only describes the state, and the `reason` for this."""
    groups = [each._replace(dense=reason, sparse=reason, first=None) for each in record.groups]
    return record._replace(
        global_step=None, before=_NOTHING, after=_NOTHING, groups=tuple(groups), clipping=None
    )


def _slots(update: Update, variable: Variable) -> Iterator[Tuple[str, Any]]:
    """Yields names and variables: slots, and what the update has created under similar names."""
    known = set()
    for name in update.optimizer.get_slot_names():
        slot = update.optimizer.get_slot(variable, name)
        if slot is not None:
            known.add(slot.op.name)
            yield name, slot
    prefix = variable.op.name + "/"
    for each in update.created:
        if each.op.name.startswith(prefix) and each.op.name not in known:
            yield each.op.name[len(prefix) :], each


def _shared_by_name(update: Update, slots: Any) -> Iterator[Tuple[str, Any]]:
    known = {id(each) for found in slots.values() for each in found.values()}
    for key, each in update.optimizer._non_slot_dict.items():
        if each.op.graph is update.operation.graph:
            known.add(id(each))
            yield key[0], each
    for each in update.created:
        if not each.shape.rank and id(each) not in known:
            yield each.op.name, each


def _without_rule(
    update: Update, reason: str, variables: Any, slots: Any, shared: Any
) -> Tuple[Record, Dict[str, Any]]:
    """Returns a record without updates, and removes slots that it cannot describe."""
    optimizer, groups = update.optimizer, []
    for name, variable in variables.items():
        described = {slot: _slot(each, variable) for slot, each in slots[name].items()}
        described = {slot: each for slot, each in described.items() if each is not None}
        slots[name] = {slot: slots[name][slot] for slot in described}
        shape = shape_of(variable)
        groups.append(Group({name: shape}, None, described, reason, reason))
    values = {}
    for name in inspect.signature(type(optimizer).__init__).parameters:
        value = _argument(optimizer, name)
        if argument_checks.is_tensor_like(value) or type(value) in (int, float):
            values[name] = value
    numbers = {name: float(x) for name, x in values.items() if type(x) in (int, float)}
    record = Record(
        optimizer=type(optimizer).__name__,
        dtype="float32",
        global_step=None,
        hyperparameters={name: Scalar("float32", numbers.get(name)) for name in values},
        shared={name: Scalar(each.dtype.base_dtype.name, 0) for name, each in shared.items()},
        before=_NOTHING,
        after=_NOTHING,
        groups=tuple(groups),
    )
    return record, {name: each for name, each in values.items() if name not in numbers}


def _slot(slot: Any, variable: Variable) -> Optional[Slot]:
    """Describes a slot; None if records have no such layout or dtype."""
    dtype, shape = slot.dtype.base_dtype.name, slot.shape.as_list()
    for layout in (ELEMENT, ROW, SCALAR):
        if dtype in DTYPES and list(stored_shape(layout, shape_of(variable))) == shape:
            return Slot(layout, dtype, 0, slot.op.name[len(variable.op.name) + 1 :])
    return None
