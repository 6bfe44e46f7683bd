"""Applies a rule (the method `RuleOptimizer.rule`) to one variable.

`apply_rule` reads the variable and its slots, calls the rule, checks the results, and then writes.
"""

from types import SimpleNamespace

import tensorflow as tf

from legacy_opt.core.update import Addition, Fading
from legacy_opt.core.variable_access import after


def apply_rule(rule, layouts, update, optimizer_name):
    """Applies a rule to one variable.

    Args:
      rule: see `RuleOptimizer.rule`.
      layouts: a dict from slot name to `legacy_opt.Slot`.
      update: the `legacy_opt.Update`.
      optimizer_name: the name in error messages.

    Returns:
      An operation; None when executing eagerly.

    Raises:
      TypeError: the rule did not return an update and a dict of slot changes.
      ValueError: the rule returned an undeclared slot, or a tensor of a wrong shape.
    """
    access = update.access
    value = access.read(update.variable)
    seen = {
        name: layout.read(getattr(update.slots, name), access, update.grad)
        for name, layout in layouts.items()
    }
    result = rule(update.grad, value, SimpleNamespace(**seen), update.hyper)
    step, changes = checked_results(result, value, seen, update.variable, optimizer_name + ".rule")
    changes = {
        name: _as_tensors(change, getattr(update.slots, name))
        for name, change in changes.items()
        if change is not seen[name]
    }
    decayed = {
        name: layouts[name].read(getattr(update.slots, name), access.whole, update.grad)
        * change.factor
        for name, change in changes.items()
        if isinstance(change, Fading) and update.sparse
    }
    # All reads must finish before the first write.
    ready = [step, value, update.grad] + [_value(change) for change in changes.values()]
    with after(*ready, *decayed.values()):
        written = []
        for name, change in changes.items():
            layout, slot = layouts[name], getattr(update.slots, name)
            if isinstance(change, Addition):
                written.append(layout.add(slot, access, change.value))
            elif name in decayed:
                with after(layout.assign(slot, access.whole, decayed[name])):
                    written.append(layout.assign(slot, access, change.value))
            else:
                written.append(layout.assign(slot, access, _value(change)))
        written.append(access.subtract(update.variable, step))
    return tf.group(*written)


def _value(change):
    return change.value if isinstance(change, (Addition, Fading)) else change


def checked_results(result, value, seen, variable, rule):
    """Checks the result of a rule; returns the update as a tensor, and the dict of slot changes."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise TypeError(f"{rule} must return (update, {{slot: new value}}), got {result!r}.")
    step, changes = tf.convert_to_tensor(result[0], value.dtype), result[1]
    if not step.shape.is_compatible_with(value.shape):
        raise ValueError(
            f"{rule} returned an update of shape {step.shape} for {variable.name!r}, expected "
            f"{value.shape}."
        )
    unknown = sorted(set(changes) - set(seen))
    if unknown:
        raise ValueError(
            f"{rule} returned slots that are not declared: {unknown}; declared: {sorted(seen)}."
        )
    for name, change in changes.items():
        shape = tf.TensorShape(getattr(_value(change), "shape", None))
        sizes = [shape.num_elements(), seen[name].shape.num_elements()]
        if None not in sizes and sizes[0] != sizes[1]:
            raise ValueError(
                f"{rule} returned the slot {name!r} of {variable.name!r} in shape {shape}, "
                f"expected {seen[name].shape}."
            )
    return step, changes


def _as_tensors(change, slot):
    dtype = slot.dtype.base_dtype
    if isinstance(change, (Addition, Fading)):
        return change._replace(value=tf.convert_to_tensor(change.value, dtype))
    return tf.convert_to_tensor(change, dtype)
