"""Describes the optimizer of an update: its rule if it can be recorded, and its state."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import tensorflow as tf

from legacy_opt import recorded
from legacy_opt.core import argument_checks, contract
from legacy_opt.core.types import Variable
from legacy_opt.native.updates.acceleration import accelerate
from legacy_opt.programs.operations import DTYPES
from legacy_opt.programs.program import Function
from legacy_opt.recorded import records
from legacy_opt.recorded.arrays.interpreter import stored_shape
from legacy_opt.recorded.records import Group, Record, RecordError, Scalar, Slot
from legacy_opt.recorded.state_files import GLOBAL_STEP, SHARED, VARIABLE, slot_key

from .updates import Update, upstream, written

v1 = tf.compat.v1
_NOTHING = Function((), {})


def description(
    update: Update, variables: Mapping[str, Variable], record: Optional[Record] = None
) -> Tuple[Record, Dict[str, Any], Dict[str, Any]]:
    """Describes the optimizer of an update.

    Returns its rule, which is `record` if this is given; the tensors of hyperparameters that are no
    numbers, by their names; and the variables of the state, by their names in a state file. If the
    rule cannot be recorded, the record has no updates, but texts that say why.
    """
    optimizer, shapes = update.optimizer, {name: shape_of(x) for name, x in variables.items()}
    try:
        record = with_shapes(record or _record(update, variables, shapes), shapes)
        numbers = record.hyperparameters.items()
        tensors = {name: _tensor(optimizer, name) for name, x in numbers if x.value is None}
        state = {
            slot_key(name, slot): optimizer.get_slot(each, slot)
            for name, each in variables.items()
            for slot in record.group_of(name, shapes[name]).slots
        }
        for name in record.shared:
            found = optimizer._get_non_slot_variable(name, graph=update.operation.graph)
            state[SHARED + name] = found
        if any(each is None for each in state.values()):
            raise RecordError("it lacks variables of its rule")
        if record.global_step is not None and not isinstance(update.global_step, tf.Variable):
            raise RecordError("its global step is no variable")
    except RecordError as error:
        reason = " ".join(str(error).split())
        record, tensors, state = _without_rule(update, variables, reason)
    state.update((VARIABLE + name, each) for name, each in variables.items())
    if isinstance(update.global_step, tf.Variable):
        state[GLOBAL_STEP] = update.global_step
    return record, tensors, state


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
    found = step.tensors.get(name) if step else None
    found = _kept(optimizer, name, argument_checks.is_tensor_like) if found is None else found
    if found is None:
        raise RecordError(f"its hyperparameter {name!r} is neither a number nor a tensor")
    return found


def shape_of(variable: Variable) -> Tuple[int, ...]:
    """Returns the shape of a variable, which is fully defined."""
    return tuple(int(each) for each in variable.shape.as_list() if each is not None)


def without_updates(record: Record, reason: str) -> Record:
    """Returns a record that only describes the state, and the `reason` for this."""
    groups = tuple(x._replace(dense=reason, sparse=reason, first=None) for x in record.groups)
    rule = {"before": _NOTHING, "after": _NOTHING, "groups": groups}
    return record._replace(global_step=None, clipping=None, **rule)


def constants_of(optimizer: Any) -> Dict[str, Any]:
    """Returns the constants among the constructor's arguments, as far as the optimizer has them."""
    names = inspect.signature(type(optimizer).__init__).parameters
    found = {name: _kept(optimizer, name, _is_constant) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _is_constant(value: Any) -> bool:
    values = value if isinstance(value, (list, tuple)) else [value]
    is_finite = type(value) in (bool, int, float) and abs(value) < math.inf
    return is_finite or all(isinstance(each, str) for each in values)


def _kept(optimizer: Any, name: str, is_right: Callable[[Any], bool]) -> Any:
    """Returns what an optimizer keeps of an argument, or None."""
    names = [name, *["lr"] * (name == "learning_rate")]
    texts = "_{}_t", "_{}_tensor", "_{}", "{}"
    found = [getattr(optimizer, text.format(each), None) for text in texts for each in names]
    return next((each for each in found if each is not None and is_right(each)), None)


def _without_rule(
    update: Update, variables: Mapping[str, Variable], reason: str
) -> Tuple[Record, Dict[str, Any], Dict[str, Any]]:
    """Returns the same as `description`, for the variables that the update writes.

    Slots are those whose names begin with that of a variable; scalars are shared.
    """
    names = written(upstream([update.operation])) - {*variables}
    found = update.operation.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
    others = {x.op.name: x for x in found if x.op.name in names and x is not update.global_step}
    state, groups = {}, []
    for name, each in sorted(variables.items(), reverse=True):  # "a/b" before "a"
        slots = {}
        for other in [x for x in others if x.startswith(name + "/")]:
            suffix, variable = other[len(name) + 1 :], others.pop(other)
            slot = _slot(suffix, variable, each)
            if slot is not None:
                slots[suffix], state[slot_key(name, suffix)] = slot, variable
        groups.append(Group({name: shape_of(each)}, None, slots, reason, reason))
    shared = {name: x for name, x in others.items() if x.shape.rank == 0 and _dtype(x) in DTYPES}
    state.update((SHARED + name, each) for name, each in shared.items())
    optimizer, values, tensors = update.optimizer, {}, {}
    for name in inspect.signature(type(optimizer).__init__).parameters:
        number = _kept(optimizer, name, lambda x: type(x) in (int, float))
        tensor = _kept(optimizer, name, argument_checks.is_tensor_like)
        if number is not None:
            values[name] = float(number)
        elif tensor is not None:
            values[name], tensors[name] = None, tensor
    hyperparameters = {name: Scalar("float32", x) for name, x in values.items()}
    scalars = {name: Scalar(_dtype(each), 0) for name, each in shared.items()}
    rule = None, hyperparameters, scalars, _NOTHING, _NOTHING, tuple(groups)
    return Record(type(optimizer).__name__, "float32", *rule), tensors, state


def _slot(suffix: str, slot: Any, variable: Variable) -> Optional[Slot]:
    """Describes a slot; None if records have no such layout or dtype."""
    for layout in (records.ELEMENT, records.ROW, records.SCALAR):
        shape = stored_shape(layout, shape_of(variable))
        if _dtype(slot) in DTYPES and slot.shape.as_list() == [*shape]:
            return Slot(layout, _dtype(slot), 0, suffix)
    return None


def _dtype(variable: Any) -> str:
    return variable.dtype.base_dtype.name
