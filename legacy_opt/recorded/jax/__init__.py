"""Trains JAX arrays with a recorded rule, in pure functions. Needs JAX, but no TensorFlow.

There are three levels. "exact" computes the bits of native kernels (`legacy-opt docs native`), also
in functions that XLA compiles. "native" runs the kernels themselves, on processors. "fast" leaves
roundings, elementary functions and sums to XLA; the results then differ in the last bits. XLA makes
denormal numbers zero on processors, as native kernels do.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Tuple, Union

import jax
import jax.numpy as jnp
import numpy as np

from legacy_opt.programs.operations import INTEGERS, WIDE
from legacy_opt.recorded.arrays import clipping, interpreter
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate, stored_shape
from legacy_opt.recorded.arrays.library import ALL_LEVELS, AUTO, EXACT, FAST, NATIVE, check_level
from legacy_opt.recorded.jax.library import JaxLibrary, dtype_of, hidden_zero, plain
from legacy_opt.recorded.jax.updates import Rows, updated
from legacy_opt.recorded.native import level_for
from legacy_opt.recorded.records import CLIP_NORM, Group, Record, RecordError

__all__ = ["JaxOptimizer", "Rows", "State"]


class State(NamedTuple):
    """The state of an optimizer; see `JaxOptimizer`.

    Attributes:
      count: the number of completed steps.
      hyperparams: a dict from names to scalars. Values that are not from schedules may be changed
        between steps.
      shared: a dict from names of shared variables to scalars.
      slots: a dict from names of slots to trees of the same structure as the parameters, with None
        where a parameter lacks the slot.
    """

    count: Any
    hyperparams: Dict[str, Any]
    shared: Dict[str, Any]
    slots: Dict[str, Any]


class JaxOptimizer:
    """An optimizer of JAX arrays. Its functions are pure, and can be compiled by `jax.jit`.

    The parameters are any tree (pytree) of arrays of the record's dtype. If the record is for
    variables of certain names, a parameter's name is the keys of its path, joined by "/".

    Example::

        import jax
        import jax.numpy as jnp
        from legacy_opt import recorded
        from legacy_opt.recorded.jax import JaxOptimizer

        params = {"w": jnp.array([1.0, 2.0])}
        optimizer = JaxOptimizer(recorded.load("LazyAdamOptimizer"), learning_rate=0.01)
        state = optimizer.init(params)
        step = jax.jit(optimizer.step)
        params, state = step(params, state, {"w": jnp.array([0.1, 0.2])})

    Args:
      record: the `Record`.
      level: "native", "exact", "fast", or "auto": "native" if there are kernels, and the processor
        is the only device; else "exact". The log `legacy_opt` then says which.
      **hyperparameters: other values of hyperparameters: numbers, or functions of the number of
        completed steps, such as schedules of optax.

    Attributes:
      level: the level.

    Raises:
      RecordError: a hyperparameter is unknown or has no value, this JAX cannot run kernels, or the
        record needs numbers of 64 bits, and `jax_enable_x64` is not set.
      ValueError: `level` is unknown.
    """

    def __init__(
        self,
        record: Record,
        level: str = "auto",
        **hyperparameters: Union[float, Callable[[Any], Any]],
    ) -> None:
        check_level(level, ALL_LEVELS)
        self._kernels = None
        if level in (AUTO, NATIVE):
            level, self._kernels = _kernels_of(record, level)
        check_x64(record, level)
        self.record = record
        self.level = level
        self._schedules = {name: each for name, each in hyperparameters.items() if callable(each)}
        self._numbers = interpreter.given_hyperparameters(record, hyperparameters, functions=True)

    def init(self, params: Any) -> State:
        """Returns the initial state.

        Raises:
          RecordError: the record does not fit a parameter, or there are no native kernels.
        """
        leaves, tree = leaves_of(params)
        count = jnp.zeros((), dtype_of("int64"))
        scheduled = {name: each(count) for name, each in self._schedules.items()}
        values = {**self._numbers, **scheduled}
        record = interpreter.started(self.record, values)
        groups = [record.group_of(name, value.shape, value.dtype) for name, value in leaves]
        if self._kernels is not None:
            for group in groups:
                self._kernels.compile(group)
        names = sorted({name for group in self.record.groups for name in group.slots})
        found = [_initial_slots(group, value) for group, (_, value) in zip(groups, leaves)]
        slots = {name: tree.unflatten(each.get(name) for each in found) for name in names}
        shared = {
            name: jnp.asarray(scalar.value, dtype_of(scalar.dtype))
            for name, scalar in record.shared.items()
        }
        return State(count, self._hyperparams(values, count), shared, slots)

    def step(self, params: Any, state: State, gradients: Any) -> Tuple[Any, State]:
        """Returns the new parameters and the new state.

        With `jax.jit`, ``donate_argnums=(0, 1)`` avoids copies of large tables.

        Args:
          params: the parameters.
          state: the state, of `init` or `step`.
          gradients: a tree of the same structure, of arrays, `Rows`, and None for no gradient. If
            the record clips gradients by their global norm, the squares are added in the order of
            `jax.tree.leaves`: the names of a dict are sorted, those of an OrderedDict are not.

        Raises:
          RecordError: the record has no update for such a gradient, or the gradient does not have
            the parameter's shape and dtype.
        """
        return self.stepped(params, state, gradients, update=updated, unchanged=lambda value: value)

    def update_rows(self, table: Any, state: State, ids: Any, values: Any) -> Tuple[Any, State]:
        """Updates rows of one table; returns the new table and its new state.

        Example::

            state = optimizer.init(table)
            table, state = jax.jit(optimizer.update_rows)(table, state, ids, values)

        Args:
          table: the table, or a tree with nothing else, such as ``{name: table}``.
          state: the state of this table alone.
          ids: see `Rows`.
          values: see `Rows`.
        """
        gradients = jax.tree.structure(table).unflatten([Rows(ids, values)])
        return self.step(table, state, gradients)

    def stepped(
        self,
        params: Any,
        state: State,
        gradients: Any,
        update: Callable[..., Tuple[Any, Dict[str, Any]]],
        unchanged: Callable[[Any], Any],
    ) -> Tuple[Any, State]:
        """Returns a tree with the result of `update` for each parameter, and the new state.

        Like `step`; but `update` is `updates.updated` or a function like it, and `unchanged` is a
        function that returns the result for a parameter without an update.
        """
        leaves, tree = leaves_of(params)
        slots = {name: tree.flatten_up_to(each) for name, each in state.slots.items()}
        grads = [
            _checked(each, name, value)
            for each, (name, value) in zip(tree.flatten_up_to(gradients), leaves)
        ]
        hyperparams = self._hyperparams(state.hyperparams, state.count)
        zero = hidden_zero(jnp.asarray(state.count), *jax.tree.leaves(grads)[:1])
        library = JaxLibrary(self.level, zero)
        inputs = {**hyperparams, **state.shared}
        given = {name: library.array(each) for name, each in inputs.items()}
        if self.record.global_step is not None:
            given["global_step"] = library.cast(state.count, self.record.global_step)
        updates = {}  # by positions of parameters
        for i, ((name, value), gradient) in enumerate(zip(leaves, grads)):
            group = self.record.group_of(name, value.shape, value.dtype)
            if gradient is not None and value.size:
                old = {slot: slots[slot][i] for slot in group.slots}
                updates[i] = ArrayUpdate.of(name, group, value, gradient, old, dtype_of)
        if self.record.clipping is not None and self._kernels is None:
            clip = clipping.clipped_by_global_norm
            limits = [given[CLIP_NORM]] * len(updates)
            clipped = clip(library, self.record, updates.values(), limits)
            updates = dict(zip(updates, clipped))
        scalars = interpreter.run_function(library, self.record.before, given)
        # The loop replaces each None by the result of an update.
        results = [None if i in updates else unchanged(each) for i, (_, each) in enumerate(leaves)]
        if self._kernels is not None:
            found = self._kernels.updated(library, updates, scalars, given.get(CLIP_NORM))
        else:
            found = {i: update(library, each, scalars) for i, each in updates.items()}
        for i, (results[i], new_values) in found.items():
            for slot, new in new_values.items():
                slots[slot][i] = new
        after = interpreter.run_function(library, self.record.after, given)
        shared = dict(state.shared, **{name: plain(each) for name, each in after.items()})
        new_slots = {name: tree.unflatten(each) for name, each in slots.items()}
        return tree.unflatten(results), State(state.count + 1, hyperparams, shared, new_slots)

    def _hyperparams(self, values: Mapping[str, Any], count: Any) -> Dict[str, Any]:
        """Returns the hyperparameters of a step as arrays.

        Raises a RecordError if a name is unknown or missing, a float replaces an integer, or,
        outside of compiled functions, a value has another sign than when it was recorded.
        """
        scalars = self.record.hyperparameters
        if set(values) != set(scalars):
            raise RecordError(f"hyperparams must be {sorted(scalars)}, got {sorted(values)}")
        values = dict(values, **{name: each(count) for name, each in self._schedules.items()})
        numbers = {  # a Tracer, in a compiled function, has no number
            name: float(values[name])
            for name in self.record.nonzero
            if not isinstance(values[name], jax.core.Tracer)
        }
        interpreter.given_hyperparameters(self.record, {**self._numbers, **numbers}, functions=True)
        for name, value in values.items():
            if jnp.ndim(value):
                raise RecordError(
                    f"{name} must be a number, got an array of the shape {[*value.shape]}"
                )
            is_float = jnp.issubdtype(jnp.result_type(value), jnp.floating)
            if scalars[name].dtype in INTEGERS and is_float:
                raise RecordError(
                    f"{name} was an integer when it was recorded, so it cannot be a float: record "
                    "the optimizer with a float, such as 1.0"
                )
        arrays = {
            name: jnp.asarray(value, dtype_of(scalars[name].dtype))
            for name, value in values.items()
        }
        # A compiled function cannot raise an error, so another sign makes all floats NaN.
        for name in self.record.nonzero:
            has_sign = jnp.sign(values[name]) == np.sign(scalars[name].value or 0)
            for other in (each for each in arrays if scalars[each].dtype not in INTEGERS):
                arrays[other] = jnp.where(has_sign, arrays[other], jnp.nan)
        return arrays


def leaves_of(params: Any) -> Tuple[List[Tuple[str, Any]], Any]:
    """Returns the pairs ("keys/of/its/path", array) of a tree, and its structure."""
    pairs, tree = jax.tree_util.tree_flatten_with_path(params)
    named = [
        (jax.tree_util.keystr(path, simple=True, separator="/"), jnp.asarray(value))
        for path, value in pairs
    ]
    return named, tree


def _initial_slots(group: Group, value: Any) -> Dict[str, Any]:
    return {
        name: jnp.full(stored_shape(slot.layout, value.shape), slot.initial, dtype_of(slot.dtype))
        for name, slot in group.slots.items()
    }


def _kernels_of(record: Record, level: str) -> Tuple[str, Any]:
    """Returns the level that "auto" or "native" means, and kernels; may raise a RecordError."""
    for name in "ffi", "typeof":
        if not hasattr(jax, name):
            if level == NATIVE:
                problem = f"cannot run native kernels: it has no jax.{name}"
                raise RecordError(f"JAX {jax.__version__} {problem}")
            return EXACT, None
    from legacy_opt.recorded.jax.kernels import XlaKernels

    kernels = XlaKernels(record)
    if level == AUTO:
        devices = f"{len(jax.devices())} {jax.default_backend()} devices"
        level = level_for(kernels, record.groups, "" if devices == "1 cpu devices" else devices)
    return level, kernels if level == NATIVE else None


def _checked(gradient: Any, name: str, variable: Any) -> Any:
    """Returns a gradient of JAX arrays that fits a variable."""
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        ids, values = gradient
        if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
            # Without x64, JAX would keep 32 bits of an id, which may be the number of another row.
            ids = np.where((ids >= 0) & (ids < 2**31), ids.astype("int64"), -1).astype("int32")
        if not variable.ndim:
            raise RecordError(f"{name!r} has no rows, but its gradient is Rows")
        gradient = Rows(jnp.asarray(ids), jnp.asarray(values))
    else:
        gradient = jnp.asarray(gradient)
    interpreter.check_gradient(name, gradient, variable)
    return gradient.in_range(variable.shape[0]) if isinstance(gradient, Rows) else gradient


def check_x64(record: Record, level: str) -> None:
    """Raises a RecordError if a record needs numbers of 64 bits, which JAX has only with x64."""
    if jax.config.jax_enable_x64:
        return
    for reason in _reasons_for_x64(record, level):
        way_out = "" if record.dtype == "float64" else ', or pass level="fast"'
        raise RecordError(
            f"the record of {record.optimizer} has {reason}, and needs numbers of 64 bits: call "
            f'jax.config.update("jax_enable_x64", True) at the start of the program{way_out}'
        )


def _reasons_for_x64(record: Record, level: str) -> Iterator[str]:
    if record.dtype == "float64":
        yield f"variables of {record.dtype}"
    if level == FAST:
        return
    scalars = [*record.hyperparameters.values(), *record.shared.values()]
    slots = [slot for group in record.groups for slot in group.slots.values()]
    programs = [program for group in record.groups for program in group.programs]
    functions = [record.before, record.after, *([] if level == NATIVE else programs)]
    nodes = [node for each in functions for node in each.nodes]
    if record.clipping is not None:
        yield "clipping by the global norm"
    for dtype in [record.global_step, *(each.dtype for each in [*scalars, *slots, *nodes])]:
        if dtype in ("float64", "int64"):
            yield f"numbers of {dtype}"
    for node in nodes:
        if node.operation in WIDE:
            yield f"the operation {node.operation}"
