"""Applies a rule (the method `RuleOptimizer.rule`) to one variable."""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, Iterable, Mapping, Tuple, Union

import tensorflow as tf

from legacy_opt.core.argument_checks import WrongTypeError
from legacy_opt.core.named_values import NamedValues
from legacy_opt.core.nearest_names import did_you_mean
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import DType, Tensor, Variable
from legacy_opt.core.update import Addition, Fading, NewValue, Update
from legacy_opt.core.variable_access import after


def apply_rule(
    rule: Callable, layouts: Mapping[str, Slot], update: Update, optimizer_name: str
) -> Any:
    """Applies a rule to one variable. Returns an operation; None when executing eagerly."""
    access = update.access
    value = access.read(update.variable)
    old = {
        name: layout.read(getattr(update.slots, name), access, update.grad)
        for name, layout in layouts.items()
    }
    slots = NamedValues.of(f"slots of {optimizer_name}", old)
    result = rule(update.grad, value, slots, update.hyper)
    change, slot_changes = checked_results(result, value, old, update.variable, optimizer_name)
    slot_changes = {name: each for name, each in slot_changes.items() if each is not old[name]}
    decayed = {}  # {name of a slot with a `Fading`: its new value, before the rows are set}
    for name, each in slot_changes.items():
        if isinstance(each, Fading) and update.sparse:
            slot = getattr(update.slots, name)
            decayed[name] = layouts[name].read(slot, access.whole, update.grad) * each.factor
    # All reads must finish before the first write.
    reads = [_value(change), value, update.grad, *map(_value, slot_changes.values())]
    with after(*reads, *decayed.values()):
        writes = []
        for name, each in slot_changes.items():
            layout = layouts[name]
            slot = getattr(update.slots, name)
            if isinstance(each, Addition):
                writes.append(layout.add(slot, access, each.value))
            elif name in decayed:
                with after(layout.assign(slot, access.whole, decayed[name])):
                    writes.append(layout.assign(slot, access, each.value))
            else:
                writes.append(layout.assign(slot, access, _value(each)))
        write = access.assign if isinstance(change, NewValue) else access.subtract
        writes.append(write(update.variable, _value(change)))
    return tf.group(*writes)


def _value(change: Any) -> Tensor:
    return change.value if isinstance(change, (Addition, Fading, NewValue)) else change


def checked_results(
    result: Any,
    value: Tensor,
    old_slots: Mapping[str, Tensor],
    variable: Variable,
    optimizer_name: str,
) -> Tuple[Any, Dict[str, Any]]:
    """Checks a rule's result; returns the change (or `NewValue`) and slot changes as tensors."""
    rule = optimizer_name + ".rule"
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise TypeError(f"{rule} must return (change, {{slot: new value}}), got {result!r}.")
    change, slot_changes = result
    of_variable = f"of {variable.name!r}"
    is_new_value = isinstance(change, NewValue)
    problem = f"{rule} returned the {'new value' if is_new_value else 'change'} {of_variable}"
    tensor = _as_tensor(problem, change.value if is_new_value else change, value.dtype)
    if not tensor.shape.is_compatible_with(value.shape):
        raise ValueError(f"{problem} in shape {tensor.shape}, expected {value.shape}.")
    _refuse_unknown(f"{rule} returned slots that are not declared", slot_changes, old_slots)
    checked_changes = {}
    for name, each in slot_changes.items():
        old = old_slots[name]
        problem = f"{rule} returned the slot {name!r} {of_variable}"
        if isinstance(each, NewValue):
            raise TypeError(f"{problem} as a NewValue, which is for variables: return its value.")
        checked_changes[name] = _as_tensors(problem, each, old.dtype)
        shape = _value(checked_changes[name]).shape
        sizes = {shape.num_elements(), old.shape.num_elements()}
        if None not in sizes and len(sizes) > 1:
            raise ValueError(f"{problem} in shape {shape}, expected {old.shape}.")
    return NewValue(tensor) if is_new_value else tensor, checked_changes


def checked_non_slots(
    new_values: Any, old_values: Mapping[str, Union[Tensor, Variable]], method: str
) -> Dict[str, Tensor]:
    """Checks the result of `RuleOptimizer.update_non_slots`; returns it with tensors as values."""
    checked_dict(method, new_values)
    _refuse_unknown(f"{method} returned names that are not in non_slots", new_values, old_values)
    return {
        name: _as_tensor(f"{method} returned {name!r}", value, old_values[name].dtype)
        for name, value in new_values.items()
    }


def checked_once_per_step(method: str, result: Any, known: Collection[str]) -> Dict[str, Tensor]:
    """Checks the result of `RuleOptimizer.once_per_step`; returns it with tensors as values."""
    scalars = {}
    for name, value in checked_dict(method, result).items():
        if name in known:
            raise ValueError(f"{method} returned {name!r}, which hyper has already.")
        tensor = tf.convert_to_tensor(value)
        if tensor.shape.rank not in (None, 0):
            text = f"{method} returned {name!r} in shape {tensor.shape}, expected a scalar."
            raise ValueError(text)
        scalars[name] = tf.reshape(tensor, []) if tensor.shape.rank is None else tensor
    return scalars


def checked_initial_values(method: str, result: Any) -> Dict[str, Any]:
    """Checks the result of `RuleOptimizer.non_slots`; returns it with floats in place of ints."""
    values = {}
    for name, value in checked_dict(method, result).items():
        if isinstance(value, (str, bytes)) or value is None:
            text = f"{method} returned {name!r} as {value!r}, expected a number or a tensor."
            raise WrongTypeError(text)
        values[name] = float(value) if isinstance(value, int) else value
    return values


def checked_dict(method: str, result: Any) -> Dict[str, Any]:
    """Returns the result of a method if it is a dict; otherwise raises a TypeError."""
    if not isinstance(result, dict):
        raise TypeError(f"{method} must return a dict, got {result!r}.")
    return result


def _refuse_unknown(problem: str, names: Iterable[str], known: Collection[str]):
    unknown = [name for name in names if name not in known]
    if unknown:
        hints = [did_you_mean(name, known) for name in unknown]
        first_hint = next(filter(None, hints), "")
        raise ValueError(f"{problem}: {unknown}; declared: {sorted(known)}.{first_hint}")


def _as_tensors(problem: str, change: Any, dtype: DType) -> Any:
    if not isinstance(change, (Addition, Fading)):
        return _as_tensor(problem, change, dtype)
    parts = [_as_tensor(problem, part, dtype) for part in change]
    return type(change)(*parts)


def _as_tensor(problem: str, value: Any, dtype: DType) -> Tensor:
    """Converts a value to a tensor. `problem` begins the message of the error."""
    try:
        return tf.convert_to_tensor(value, dtype)
    except (TypeError, ValueError):
        if not hasattr(value, "dtype"):
            expected = f"expected a tensor of dtype {dtype.name}."
            raise WrongTypeError(f"{problem} as {value!r}, {expected}") from None
        value_dtype = tf.as_dtype(value.dtype).base_dtype
        if value_dtype == dtype:
            raise
        raise WrongTypeError(
            f"{problem} in dtype {value_dtype.name}, expected {dtype.name}: cast it by "
            f"tf.cast(…, tf.{dtype.name})."
        ) from None
