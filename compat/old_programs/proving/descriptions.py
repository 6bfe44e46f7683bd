"""Describes the optimizer of an update: its rule if it can be recorded, and its state."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

import tensorflow as tf

from legacy_opt import recorded
from legacy_opt.core import argument_checks, contract
from legacy_opt.core.types import Variable
from legacy_opt.native.updates.acceleration import accelerate
from legacy_opt.programs.operations import DTYPES
from legacy_opt.programs.program import Function
from legacy_opt.recorded.arrays.interpreter import stored_shape
from legacy_opt.recorded.records import ELEMENT, ROW, SCALAR, Group, Record, RecordError, Scalar, Slot
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
    """Describes the optimizer of an update; if a `record` is given, it is not recorded again."""
    optimizer, shapes = update.optimizer, {name: shape_of(x) for name, x in variables.items()}
    try:
        if record is None:
            record = _record(update, variables, shapes)
        record = with_shapes(record, shapes)
        reason = next((str(each.dense) for each in record.groups if not each.programs), "")
        numbers = record.hyperparameters.items()
        tensors = {name: _tensor(optimizer, name) for name, x in numbers if x.value is None}
        find = optimizer._get_non_slot_variable
        shared = {name: find(name, graph=update.operation.graph) for name in record.shared}
        slots = {
            name: {
                slot: optimizer.get_slot(each, slot)
                for slot in record.group_of(name, shapes[name]).slots
            }
            for name, each in variables.items()
        }
        if any(x is None for each in (shared, *slots.values()) for x in each.values()):
            raise RecordError(reason or "it lacks variables of its rule")
        if record.global_step is not None and not isinstance(update.global_step, tf.Variable):
            raise RecordError("its global step is no variable")
    except RecordError as error:
        reason = " ".join(str(error).split())
        record, tensors, slots, shared = _without_rule(update, reason, variables)
    state = {VARIABLE + name: each for name, each in variables.items()}
    state.update((slot_key(n, s), x) for n, each in slots.items() for s, x in each.items())
    state.update((SHARED + name, each) for name, each in shared.items())
    if isinstance(update.global_step, tf.Variable):
        state[GLOBAL_STEP] = update.global_step
    return Description(record, reason, tensors, state)


def _record(
    update: Update, variables: Mapping[str, Variable], shapes: Mapping[str, Tuple[int, ...]]
) -> Record:
    for name, each in variables.items():
        if getattr(each, "constraint", None) is not None:
            raise RecordError(f"{name!r} has a constraint")
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
        decays = getattr(update.optimizer, "decays", lambda variable: True)
        decayed = {each.op.name: decays(each) for _, each in update.pairs}
        if not all(decayed.values()):
            names = [name for name in shapes if decayed[name]]
            return recorded.record(optimizer, shapes, decay_var_list=names)
        with contextlib.suppress(RecordError):  # the rule may depend on names or shapes
            return recorded.record(optimizer)
        return recorded.record(optimizer, shapes)
    except RecordError:
        raise
    except Exception as error:  # a user's class may raise anything
        raise RecordError(f"{type(error).__name__}: {error}") from error


def with_shapes(record: Record, shapes: Mapping[str, Tuple[int, ...]]) -> Record:
    """Returns a record with other shapes of its variables, such as those of some rows."""
    groups = [
        each._replace(variables=each.variables and {name: shapes[name] for name in each.variables})
        for each in record.groups
    ]
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


def shape_of(variable: Variable) -> Tuple[int, ...]:
    """Returns the shape of a variable, which is fully defined."""
    return tuple(int(each) for each in variable.shape.as_list() if each is not None)


def constants_of(optimizer: Any) -> Dict[str, Any]:
    """Returns the constants among the constructor's arguments, as far as the optimizer has them."""
    found = {}
    for name, value in _arguments(optimizer).items():
        values = value if isinstance(value, (list, tuple)) else [value]
        is_finite = type(value) in (bool, int, float) and abs(value) < math.inf
        if is_finite or all(isinstance(each, str) for each in values):
            found[name] = value
    return found


def _arguments(optimizer: Any) -> Dict[str, Any]:
    """Returns what an optimizer keeps of the arguments of its constructor."""
    found = {}
    for name in inspect.signature(type(optimizer).__init__).parameters:
        short = ["_lr"] if name == "learning_rate" else []  # of Adam
        values = [vars(optimizer).get(each) for each in ("_" + name, name, *short)]
        found.update([(name, each) for each in values if each is not None][:1])
    return found


# Optimizers without a rule:


def without_updates(record: Record, reason: str) -> Record:
    """Returns a record that only describes the state, and the `reason` for this."""
    groups = [each._replace(dense=reason, sparse=reason, first=None) for each in record.groups]
    return record._replace(
        global_step=None, before=_NOTHING, after=_NOTHING, groups=tuple(groups), clipping=None
    )


def _variables(update: Update, variables: Mapping[str, Variable]) -> Tuple[Any, Dict[str, Any]]:
    """Returns slots and shared variables, also those that the update has created itself."""
    optimizer, created, slots = update.optimizer, {x.op.name: x for x in update.created}, {}
    for name, each in variables.items():
        named = {slot: optimizer.get_slot(each, slot) for slot in optimizer.get_slot_names()}
        slots[name] = {slot: x for slot, x in named.items() if x is not None}
        for x in slots[name].values():
            created.pop(x.op.name, None)
        own = [x for x in created if x.startswith(name + "/")]
        slots[name].update((x[len(name) + 1 :], created.pop(x)) for x in own)
    shared = {
        key[0]: created.pop(each.op.name, each)
        for key, each in optimizer._non_slot_dict.items()
        if each.op.graph is update.operation.graph
    }
    shared.update((name, each) for name, each in created.items() if not each.shape.rank)
    return slots, shared


def _without_rule(
    update: Update, reason: str, variables: Mapping[str, Variable]
) -> Tuple[Record, Dict[str, Any], Any, Dict[str, Any]]:
    """Returns a record without updates, tensors of hyperparameters, slots and shared variables."""
    slots, shared = _variables(update, variables)
    groups = []
    for name, each in variables.items():
        described = {slot: _slot(x, each) for slot, x in slots[name].items()}
        described = {slot: x for slot, x in described.items() if x is not None}
        slots[name] = {slot: slots[name][slot] for slot in described}
        groups.append(Group({name: shape_of(each)}, None, described, reason, reason))
    arguments = _arguments(update.optimizer)
    numbers = {name: float(x) for name, x in arguments.items() if type(x) in (int, float)}
    tensors = {n: x for n, x in arguments.items() if argument_checks.is_tensor_like(x)}
    record = Record(
        optimizer=type(update.optimizer).__name__,
        dtype="float32",
        global_step=None,
        hyperparameters={n: Scalar("float32", numbers.get(n)) for n in {**numbers, **tensors}},
        shared={name: Scalar(each.dtype.base_dtype.name, 0) for name, each in shared.items()},
        before=_NOTHING,
        after=_NOTHING,
        groups=tuple(groups),
    )
    return record, tensors, slots, shared


def _slot(slot: Any, variable: Variable) -> Optional[Slot]:
    """Describes a slot; None if records have no such layout or dtype."""
    dtype, shape = slot.dtype.base_dtype.name, slot.shape.as_list()
    for layout in (ELEMENT, ROW, SCALAR):
        if dtype in DTYPES and list(stored_shape(layout, shape_of(variable))) == shape:
            return Slot(layout, dtype, 0, slot.op.name[len(variable.op.name) + 1 :])
    return None
