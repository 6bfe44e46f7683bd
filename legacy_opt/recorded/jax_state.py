"""Moves states of trainings between files and JAX. Needs JAX, but no TensorFlow."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from legacy_opt.recorded.jax import State, leaves_of
from legacy_opt.recorded.jax_library import dtype_of
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.state_files import SavedState, check_rule, check_variable


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
      state: a `legacy_opt.recorded.jax.State`, or a state of optax in which there is one.
      params: the tree of parameters.
      names: a dict from names of TensorFlow's variables to those of the parameters, which are the
        keys of the path to a parameter, joined by "/". By default, they are the same.

    Raises:
      RecordError: there is no such state or more than one, or `names` does not fit the parameters.
    """
    own = _own(state)
    variables, slots = {}, {}
    for i, (name, value) in enumerate(_named(params, names)):
        variables[name] = np.array(value)
        layouts = record.group_of(name, value.shape, value.dtype).slots
        slots[name] = {
            slot: np.array(_tree_of(params).flatten_up_to(own.slots[slot])[i], layout.dtype)
            for slot, layout in layouts.items()
        }
    shared = {
        name: np.asarray(own.shared[name], scalar.dtype)[()]
        for name, scalar in record.shared.items()
    }
    return SavedState(record, int(own.count), shared, variables, slots)


def load_state(
    record: Record,
    saved: SavedState,
    state: Any,
    params: Any,
    names: Optional[Mapping[str, str]] = None,
) -> Tuple[Any, Any]:
    """Returns the state and the parameters with the values of a saved state; see `state_of`.

    Hyperparameters keep the values that they have in `state`.

    Example::

        saved = state_files.read("state.npz")
        optimizer = from_record(saved.record)
        state = optimizer.init(params)
        state, params = jax_state.load_state(saved.record, saved, state, params)

    Raises:
      RecordError: as in `state_of`; or the saved state belongs to another rule, or does not have a
        variable with the parameter's shape.
    """
    own, tree = _own(state), _tree_of(params)
    check_rule(saved, record)
    named = list(_named(params, names))
    for name, value in named:
        check_variable(saved, name, value.shape)
    slots = {
        slot: tree.unflatten(_loaded(saved.slots[name].get(slot)) for name, _ in named)
        for slot in own.slots
    }
    new = State(
        jnp.asarray(saved.global_step, own.count.dtype),
        own.hyperparams,
        {name: _loaded(value) for name, value in saved.shared.items()},
        slots,
    )
    params = tree.unflatten(_loaded(saved.variables[name]) for name, _ in named)
    is_own = lambda each: isinstance(each, State)  # noqa: E731
    return jax.tree.map(lambda each: new if is_own(each) else each, state, is_leaf=is_own), params


def _own(state: Any) -> State:
    """Returns the state of a recorded rule in a state of optax."""
    found = [
        each
        for each in jax.tree.leaves(state, is_leaf=lambda each: isinstance(each, State))
        if isinstance(each, State)
    ]
    if len(found) != 1:
        raise RecordError(f"state has {len(found)} states of recorded rules, expected 1")
    return found[0]


def _named(params: Any, names: Optional[Mapping[str, str]]) -> Iterator[Tuple[str, Any]]:
    """Yields the TensorFlow name and the array of each parameter."""
    leaves, _ = leaves_of(params)
    names_of = {path: name for name, path in (names or {}).items()}
    for path in sorted(set(names_of) - {path for path, _ in leaves}):
        raise RecordError(f"names has {path!r}, but there is no such parameter")
    for path, value in leaves:
        yield names_of.get(path, path), value


def _tree_of(params: Any) -> Any:
    return leaves_of(params)[1]


def _loaded(value: Any) -> Any:
    return None if value is None else jnp.asarray(value, dtype_of(np.asarray(value).dtype.name))
