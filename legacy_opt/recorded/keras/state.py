"""Moves states of trainings between files and Keras 3. Needs no TensorFlow."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Tuple

import keras
import numpy as np

from legacy_opt.recorded.keras import RecordedOptimizer
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import SavedState, check_rule, check_variable, named_variables


def state_of(optimizer: RecordedOptimizer, names: Optional[Mapping[str, Any]] = None) -> SavedState:
    """Returns a copy of the state of an optimizer.

    Example::

        from legacy_opt.recorded import keras_state, state_files

        names = {"hidden/kernel": model.layers[0].kernel, "hidden/bias": model.layers[0].bias}
        state_files.write("state.npz", keras_state.state_of(model.optimizer, names))

    Args:
      optimizer: the `RecordedOptimizer`.
      names: a dict from names of TensorFlow's variables to variables of Keras. By default, the
        names are the paths of Keras.

    Raises:
      RecordError: the optimizer is not built, or two variables have the same name.
    """
    record = optimizer.record
    variables, slots = {}, {}
    for name, variable, is_trained in _named(optimizer, names):
        variables[name] = _array(variable)
        if not is_trained:
            continue
        layouts = record.group_of(variable.path, variable.shape, record.dtype).slots
        slots[name] = {
            slot: _array(each).astype(layouts[slot].dtype)
            for slot, each in optimizer.slots(variable).items()
        }
    shared = {
        name: _array(variable).astype(record.shared[name].dtype)[()]
        for name, variable in optimizer.shared.items()
    }
    return SavedState(record, int(_array(optimizer.iterations)), shared, variables, slots)


def load_state(
    optimizer: RecordedOptimizer, state: SavedState, names: Optional[Mapping[str, Any]] = None
) -> None:
    """Writes a state into the variables and slots of an optimizer; see `state_of`.

    Raises:
      RecordError: the optimizer is not built, or the state belongs to another rule or lacks a
        variable of the same shape. Nothing has been changed.
    """
    check_rule(state, optimizer.record)
    found = list(_named(optimizer, names))
    for name, variable, is_trained in found:
        check_variable(state, name, variable, bool(is_trained))
    for name, variable, is_trained in found:
        variable.assign(state.variables[name])
        slots = optimizer.slots(variable) if is_trained else {}
        for slot, each in slots.items():
            each.assign(state.slots[name][slot])
    for name, variable in optimizer.shared.items():
        variable.assign(state.shared[name])
    optimizer.set_global_step(state.global_step)


def _named(
    optimizer: RecordedOptimizer, names: Optional[Mapping[str, Any]]
) -> Iterator[Tuple[Any, ...]]:
    """Yields tuples (name, variable of Keras, is_trained: True or None)."""
    if not optimizer.built:
        raise RecordError("the optimizer has no state: call optimizer.build(variables)")
    return named_variables(((str(each.path), each, True) for each in optimizer.trained), names)


def _array(variable: Any) -> Any:
    return np.array(keras.ops.convert_to_numpy(variable))
