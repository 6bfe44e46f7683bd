"""Translates states to optax' own optimizers, where one is the same. Needs JAX and optax."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Tuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from legacy_opt.durable_files import PathLike
from legacy_opt.recorded.neighbours import OPTAX, grading
from legacy_opt.recorded.neighbours.grading import Arrays, Grade, Gradients, Rates, Setting
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import SavedState, write_arrays

__all__ = ["OptaxOwn", "from_state"]


class OptaxOwn(NamedTuple):
    """One of optax' own optimizers, with the state of a recorded rule.

    Example::

        from legacy_opt.recorded import optax_own, state_files

        own = optax_own.from_state(state_files.read("state.npz"))
        print(own.grade)
        updates, opt_state = own.transformation.update(gradients, own.opt_state, own.params)

    Attributes:
      transformation: the `optax.GradientTransformation`.
      opt_state: the transformation's state.
      params: a dict from names of the trained variables to arrays.
      grade: how near the training is to the rule's, for dense gradients.
    """

    transformation: Any
    opt_state: Any
    params: Dict[str, Any]
    grade: Grade


def from_state(state: SavedState, **hyperparameters: float) -> OptaxOwn:
    """Returns optax' own optimizer with a state, if its training is the same up to rounding.

    The comparison is for dense gradients.

    Args:
      state: the state.
      **hyperparameters: other values of hyperparameters.

    Raises:
      RecordError: optax has no such optimizer, or its training differs: the message says by how
        much.
    """
    setting, grade = grading.chosen(state, OPTAX, "optax.{}", _train, hyperparameters)
    return OptaxOwn(*_optimizer(state, setting), grade)


def write(path: PathLike, state: SavedState, **hyperparameters: float) -> Grade:
    """Writes a state for optax' own optimizer into an `.npz` file; returns the grade.

    The names of the arrays are "params" or "opt_state" and the path of a leaf, as
    `jax.tree_util.keystr` writes it, such as ``opt_state[0].mu['dense/kernel']``. The file is
    complete or not written. Raises errors like `from_state`.
    """
    if not str(path).endswith(".npz"):
        raise RecordError(f"{str(path)!r}: the name of the file must end in .npz")
    own = from_state(state, **hyperparameters)
    leaves = [
        (tree + jax.tree_util.keystr(place), np.asarray(leaf))
        for tree, value in (("params", own.params), ("opt_state", own.opt_state))
        for place, leaf in jax.tree_util.tree_leaves_with_path(value)
    ]
    write_arrays(path, leaves)
    return own.grade


def _optimizer(state: SavedState, setting: Setting) -> Tuple[Any, Any, Dict[str, Any]]:
    """Returns the transformation, its state, and the parameters."""
    transformation = getattr(optax, setting.name)(**setting.arguments)
    params = {name: jnp.asarray(state.variables[name]) for name in state.slots}
    fields: Dict[str, Any] = {
        field: {name: jnp.asarray(slots[slot]) for name, slots in state.slots.items()}
        for slot, field in setting.slots.items()
    }
    if setting.name == "rmsprop":  # optax adds the trace to parameters, TensorFlow subtracts it
        fields["trace"] = {name: -each for name, each in fields["trace"].items()}
    fields["count"] = jnp.asarray(setting.step, jnp.int32)

    def filled(part: Any) -> Any:
        """Returns a state of optax, a tree of tuples, with these fields."""
        if hasattr(part, "_fields"):
            return part._replace(**{each: fields[each] for each in part._fields if each in fields})
        return tuple(map(filled, part)) if isinstance(part, tuple) else part

    return transformation, filled(transformation.init(params)), params


def _train(state: SavedState, setting: Setting, gradients: Gradients, rates: Rates) -> Arrays:
    _, opt_state, params = _optimizer(state, setting)
    for each, rate in zip(gradients, rates):
        arguments = dict(setting.arguments, learning_rate=rate)
        transformation = getattr(optax, setting.name)(**arguments)
        grads = {name: jnp.asarray(each[name]) for name in params}
        updates, opt_state = transformation.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
    return {name: np.asarray(array) for name, array in params.items()}
