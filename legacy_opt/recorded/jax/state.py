"""Moves states of trainings between files and JAX. Needs JAX, but no TensorFlow."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from legacy_opt.recorded import state_files
from legacy_opt.recorded.arrays.interpreter import check_slots
from legacy_opt.recorded.jax import State, leaves_of
from legacy_opt.recorded.jax.library import dtype_of
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.state_files import SavedState, distinct

__all__ = ["load_state", "state_of"]


def state_of(
    record: Record, state: Any, params: Any, names: Optional[Mapping[str, str]] = None
) -> SavedState:
    """Returns a copy of the state of a training.

    Example::

        from legacy_opt.recorded import jax_state, state_files

        names = {"dense/kernel": "params/Dense_0/kernel", "dense/bias": "params/Dense_0/bias"}
        state_files.write("state.npz", jax_state.state_of(record, state, params, names))

    Args:
      record: the `Record`.
      state: a `legacy_opt.recorded.jax.State`, or a state of optax that contains one. All states of
        this rule, as in `optax.multi_transform`, are joined. Parameters without such a state are
        variables that are not trained.
      params: the tree of parameters.
      names: a dict from names of TensorFlow's variables to names of parameters: the keys of the
        path to a parameter, joined by "/". By default, both are the same.

    Raises:
      RecordError: there is no such state, a parameter has more than one, states have completed
        different steps, two parameters have the same name, or `names` does not fit them.
    """
    states = _states_of(record, state)
    variables, slots = {}, {}
    for _, name, value, arrays in _parameters(record, states, params, names):
        variables[name] = np.array(value)
        if arrays is not None:
            group = record.group_of(name, value.shape, value.dtype)
            check_slots(name, group, value.shape, arrays, dtype_of)
            slots[name] = {
                each: np.array(arrays[each], slot.dtype) for each, slot in group.slots.items()
            }
    first, *others = states
    shared = {
        name: np.asarray(first.shared[name], scalar.dtype)[()]
        for name, scalar in record.shared.items()
    }
    for other in others:
        if other.count != first.count or any(other.shared[name] != shared[name] for name in shared):
            raise RecordError("states of the same rule have completed different steps")
    return SavedState(record, np.asarray(first.count).item(), shared, variables, slots)


def load_state(
    record: Record,
    saved: SavedState,
    state: Any,
    params: Any,
    names: Optional[Mapping[str, str]] = None,
) -> Tuple[Any, Any]:
    """Returns `state` and `params` with the values of a saved state; see `state_of`.

    Hyperparameters keep the values in `state`.

    Example::

        saved = state_files.read("state.npz")
        optimizer = from_record(saved.record)
        state = optimizer.init(params)
        state, params = jax_state.load_state(saved.record, saved, state, params)

    Raises:
      RecordError: as in `state_of`; or the saved state belongs to another rule, or does not have a
        variable with the parameter's shape.
    """
    state_files.check_rule(saved, record)
    states = _states_of(record, state)
    found = _parameters(record, states, params, names)
    for _, name, value, arrays in found:
        is_trained = arrays is not None
        # The file may lack a parameter that is not trained, unless the user names it.
        if is_trained or name in saved.variables or name in (names or {}):
            state_files.check_variable(saved, name, value, is_trained)
    name_of = {path: name for path, name, *_ in found}
    shared = {name: _loaded(value) for name, value in saved.shared.items()}

    def loaded(slot: str, old: Any) -> Any:
        leaves, tree = leaves_of(old)
        return tree.unflatten(_loaded(saved.slots[name_of[path]][slot]) for path, _ in leaves)

    new = {
        id(each): each._replace(
            count=jnp.asarray(saved.global_step, each.count.dtype),
            shared=shared,
            slots={slot: loaded(slot, old) for slot, old in each.slots.items()},
        )
        for each in states
    }
    values = (_loaded(saved.variables.get(name, value)) for _, name, value, _ in found)
    state = jax.tree.map(lambda each: new.get(id(each), each), state, is_leaf=_is_state)
    return state, leaves_of(params)[1].unflatten(values)


def _is_state(x: Any) -> bool:
    return isinstance(x, State)


def _states_of(record: Record, state: Any) -> List[State]:
    """Returns the states of a rule in a state of optax."""
    names = {slot for group in record.groups for slot in group.slots}
    found = [
        each
        for each in filter(_is_state, jax.tree.leaves(state, is_leaf=_is_state))
        if set(each.hyperparams) == set(record.hyperparameters) and set(each.slots) == names
    ]
    if not found:
        raise RecordError(f"state has 0 states of the rule of {record.optimizer}")
    return found


def _parameters(
    record: Record, states: List[State], params: Any, names: Optional[Mapping[str, str]]
) -> List[Tuple[str, str, Any, Optional[Dict[str, Any]]]]:
    """Returns tuples (path, name, array, slots), one for each parameter.

    Slots are None if no state has them: optax leaves masked parameters out of a state.
    """
    leaves, _ = leaves_of(params)
    names_of = {path: name for name, path in (names or {}).items()}
    slots_of: Dict[str, List[Dict[str, Any]]] = {}  # by path, the slots in each state with slots
    for state in states:
        slots: Dict[str, Dict[str, Any]] = {}
        for slot, tree in state.slots.items():
            for path, array in leaves_of(tree)[0]:
                slots.setdefault(path, {})[slot] = array
        for path, arrays in slots.items():
            slots_of.setdefault(path, []).append(arrays)
    for path in sorted({*names_of, *slots_of} - {path for path, _ in leaves}):
        where = "names" if path in names_of else "the state"
        raise RecordError(f"{where} has {path!r}, but there is no such parameter")
    found = []
    named = [(names_of.get(path, path), path, value) for path, value in leaves]
    for name, path, value in distinct(named):
        of_states = slots_of.get(path, [])
        group = state_files.group_of(record, name, value.dtype, value.shape)
        if len(of_states) > 1:
            raise RecordError(f"state has {len(of_states)} states of {name!r}, expected 1")
        if not of_states and group is not None and not group.slots:
            of_states = [{}]
        found.append((path, name, value, of_states[0] if of_states else None))
    return found


def _loaded(value: Any) -> Any:
    return None if value is None else jnp.asarray(value, dtype_of(np.asarray(value).dtype.name))
