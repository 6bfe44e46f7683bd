"""Moves states of trainings between files and Keras 3. Needs no TensorFlow."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import keras
import numpy as np

from legacy_opt.recorded.keras import RecordedOptimizer
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import SavedState, check_rule, check_variable, distinct


def state_of(optimizer: RecordedOptimizer, names: Optional[Mapping[str, Any]] = None) -> SavedState:
    """Returns a copy of the state of an optimizer.

    Example::

        from legacy_opt.recorded import keras_state, state_files

        names = {"hidden/kernel": model.layers[0].kernel, "hidden/bias": model.layers[0].bias}
        state_files.write("state.npz", keras_state.state_of(model.optimizer, names))

    Args:
      optimizer: the `RecordedOptimizer`.
      names: a dict from names of TensorFlow's variables to those of Keras. By default, the names
        are the paths of Keras.

    Raises:
      RecordError: the optimizer is not built, or two variables have the same name.
    """
    record, variables, slots = optimizer.record, {}, {}
    for name, variable in _named(optimizer, names):
        variables[name] = _array(variable)
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
      RecordError: the optimizer is not built, or the state belongs to another rule, or does not
        have a variable with this shape. Nothing has been changed.
    """
    check_rule(state, optimizer.record)
    found = list(_named(optimizer, names))
    for name, variable in found:
        check_variable(state, name, variable.shape)
    for name, variable in found:
        variable.assign(state.variables[name])
        for slot, each in optimizer.slots(variable).items():
            each.assign(state.slots[name][slot])
    for name, variable in optimizer.shared.items():
        variable.assign(state.shared[name])
    optimizer.set_global_step(state.global_step)


def _named(
    optimizer: RecordedOptimizer, names: Optional[Mapping[str, Any]]
) -> Iterator[Tuple[Any, ...]]:
    """Returns the names and the variables of Keras."""
    if not optimizer.built:
        raise RecordError("the optimizer has no state: call optimizer.build(variables)")
    given: Dict[int, str] = {id(variable): name for name, variable in (names or {}).items()}
    return distinct(
        (given.get(id(variable)) or str(variable.path), variable) for variable in optimizer.trained
    )


def _array(variable: Any) -> Any:
    return np.array(keras.ops.convert_to_numpy(variable))
