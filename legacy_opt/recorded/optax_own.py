"""Translates states to optax' own optimizers, where one is the same. Needs JAX and optax."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from legacy_opt.recorded import counterparts
from legacy_opt.recorded.counterparts import Arrays, Grade, Gradients, Rates, Setting
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import SavedState, write_arrays
from legacy_opt.recorded.writing import PathLike

_Hyper = Mapping[str, float]


class OptaxOwn(NamedTuple):
    """One of optax' own optimizers, with the state of a recorded rule.

    Example::

        from legacy_opt.recorded import optax_own, state_files

        own = optax_own.from_state(state_files.read("state.npz"))
        print(own.grade)
        updates, opt_state = own.transformation.update(gradients, own.opt_state, own.params)

    Attributes:
      transformation: the `optax.GradientTransformation`.
      opt_state: its state.
      params: a dict from names of the trained variables to arrays.
      grade: how near its training is, for dense gradients.
    """

    transformation: Any
    opt_state: Any
    params: Dict[str, Any]
    grade: Grade


def _sgd(state: SavedState, hyper: _Hyper) -> List[Setting]:
    arguments: Dict[str, Any] = {"learning_rate": hyper["learning_rate"]}
    if "momentum" not in hyper:
        return [Setting("sgd", arguments, {}, state.global_step)]
    arguments["momentum"] = hyper["momentum"]
    return [
        Setting("sgd", dict(arguments, nesterov=each), {"trace": "momentum"}, state.global_step)
        for each in (False, True)
    ]


def _adam(state: SavedState, hyper: _Hyper) -> List[Setting]:
    name = "adamw" if "weight_decay" in hyper else "adam"
    found = counterparts.adam_settings(name, state, hyper)
    arguments = dict(found.arguments)
    arguments["b1"], arguments["b2"] = arguments.pop("betas")
    arguments["eps"] = arguments.pop("epsilon")
    return [found._replace(arguments=arguments, slots={"mu": "m", "nu": "v"})]


def _adagrad(state: SavedState, hyper: _Hyper) -> List[Setting]:
    arguments = {"learning_rate": hyper["learning_rate"], "eps": 0.0}
    return [Setting("adagrad", arguments, {"sum_of_squares": "accumulator"}, state.global_step)]


def _adadelta(state: SavedState, hyper: _Hyper) -> List[Setting]:
    arguments = {"learning_rate": hyper["learning_rate"], "rho": hyper["rho"]}
    arguments["eps"] = hyper["epsilon"]
    return [Setting("adadelta", arguments, {"e_g": "accum", "e_x": "accum_update"}, 0)]


def _rms_prop(state: SavedState, hyper: _Hyper) -> List[Setting]:
    centered = any("mg" in slots for slots in state.slots.values())
    arguments = {"learning_rate": hyper["learning_rate"], "decay": hyper["decay"]}
    arguments.update(eps=hyper["epsilon"], momentum=hyper["momentum"], centered=centered)
    # optax' trace has the sign of updates, which are added.
    slots: Dict[str, Any] = {"nu": "rms", "trace": ("momentum", -1.0)}
    return [Setting("rmsprop", arguments, dict(slots, **({"mu": "mg"} if centered else {})), 0)]


_SETTINGS: Dict[str, Callable[[SavedState, _Hyper], List[Setting]]] = {
    "AdadeltaOptimizer": _adadelta,
    "AdagradOptimizer": _adagrad,
    "AdamOptimizer": _adam,
    "AdamWOptimizer": _adam,
    "GradientDescentOptimizer": _sgd,
    "LazyAdamOptimizer": _adam,
    "MomentumOptimizer": _sgd,
    "RMSPropOptimizer": _rms_prop,
}


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
    setting, grade = counterparts.chosen(
        state, "optax", "optax.{}", _SETTINGS, _train, hyperparameters
    )
    return OptaxOwn(*_optimizer(state, setting), grade)


def write(path: PathLike, state: SavedState, **hyperparameters: float) -> Grade:
    """Writes a state for optax' own optimizer into an `.npz` file; see `from_state`.

    The names of the arrays are "params" or "opt_state" and the path of a leaf, as
    `jax.tree_util.keystr` writes it, such as ``opt_state[0].mu['dense/kernel']``.

    Args:
      path: the file, which is complete or not written.
      state: the state.
      **hyperparameters: see `from_state`.

    Returns:
      The grade.

    Raises:
      RecordError: see `from_state`; or the name of the file does not end in `.npz`.
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
        field: {name: jnp.asarray(array) for name, array in arrays.items()}
        for field, arrays in counterparts.slot_arrays(state, setting).items()
    }
    fields["count"] = jnp.asarray(setting.step, jnp.int32)

    def filled(part: Any) -> Any:
        if hasattr(part, "_fields"):
            return part._replace(**{each: fields[each] for each in part._fields if each in fields})
        return tuple(map(filled, part)) if isinstance(part, tuple) else part

    return transformation, filled(transformation.init(params)), params


def _train(state: SavedState, setting: Setting, gradients: Gradients, rates: Rates) -> Arrays:
    _, opt_state, params = _optimizer(state, setting)
    for each, rate in zip(gradients, rates):
        transformation = getattr(optax, setting.name)(**dict(setting.arguments, learning_rate=rate))
        grads = {name: jnp.asarray(each[name]) for name in params}
        updates, opt_state = transformation.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
    return {name: np.asarray(array) for name, array in params.items()}
