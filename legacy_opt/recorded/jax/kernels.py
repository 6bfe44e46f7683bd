"""Updates JAX's arrays by native kernels, all arrays of a step in one operation of XLA."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, NoReturn, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from legacy_opt.native.runtime import standalone, xla
from legacy_opt.native.runtime.compiled_kernels import Kernel
from legacy_opt.programs.program import FACTOR, UnsupportedError
from legacy_opt.recorded.arrays import clipping
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate, Computation
from legacy_opt.recorded.jax.library import JaxLibrary, dtype_of, plain
from legacy_opt.recorded.jax.updates import Rows, written
from legacy_opt.recorded.native import Kernels
from legacy_opt.recorded.records import Group, RecordError


@functools.lru_cache(maxsize=None)
def _library() -> Any:
    """Returns the library, whose function XLA knows, or raises a RecordError."""
    try:
        library = xla.library(jax.ffi.include_dir())
        # A handler that XLA refuses would stop XLA itself from starting, if it came before.
        jax.devices("cpu")
        handler = jax.ffi.pycapsule(library.legacy_opt_xla)
        jax.ffi.register_ffi_target(xla.target(), handler, platform="cpu")
    except (UnsupportedError, OSError, RuntimeError) as error:
        raise RecordError(f"native kernels cannot run in JAX: {error}") from error
    return library


def _key(kernel: Kernel) -> str:
    """Returns the key of a kernel, under which the library finds it from now on."""
    _library().legacy_opt_register(kernel.key.encode(), ctypes.c_void_p(kernel.address))
    return kernel.key


class XlaKernels(Kernels):
    """The kernels of a record, which XLA runs."""

    def compile(self, group: Group) -> None:
        _library()
        super().compile(group)

    def updated(
        self,
        library: JaxLibrary,
        updates: Mapping[int, ArrayUpdate],
        scalars: Mapping[str, Any],
        limit: Any,
    ) -> Dict[int, Tuple[Any, Dict[str, Any]]]:
        """Returns the new values of each variable and of its slots.

        The library computes scalars exactly. The updates are those of all variables; their ids are
        `Rows.in_range`. `limit` is the limit of the global norm, if the record clips gradients.
        """
        if not updates:
            return {}
        factor = None
        if self.clips:
            updates, factor = self._clipped(library, updates, limit)

        def dense(gradient: Rows, value: Any) -> Any:
            return written(jnp.zeros_like(value), *gradient.summed(library))

        changed: List[Any] = []  # variables, each followed by its slots; results take their memory
        calls = []  # the number in the update, a call, and the position of the variable plus 1
        given = {name: plain(each) for name, each in {**scalars, FACTOR: factor}.items()}
        for update in updates.values():
            read: List[Any] = []
            for i, call in enumerate(self.calls(update, dense)):
                calls.append((i, call, len(changed) + 1))
                read += [call.gradient, call.ids]
                read += [given[each.name] for each in call.kernel.inputs.scalars]
            changed += _alike([update.variable, *update.slots.values()], read)
        results = iter(_run(changed, calls, given))
        return {
            i: (next(results), {name: next(results) for name in update.slots})
            for i, update in updates.items()
        }

    def _clipped(
        self, library: JaxLibrary, updates: Mapping[int, ArrayUpdate], limit: Any
    ) -> Tuple[Dict[int, ArrayUpdate], Any]:
        """Returns updates with clipped rows, and the factor of other gradients.

        As `clipping.clipped_by_global_norm`, which would compute the norm with operations of XLA.
        """
        do = Computation(library, self.dtype)
        rows = {i: each.gradient for i, each in updates.items() if isinstance(each.gradient, Rows)}
        if self.sums_rows:
            rows = {i: library.summed_in_place(each) for i, each in rows.items()}
        arrays = [rows[i].values if i in rows else each.gradient for i, each in updates.items()]
        kernel = self.sum_of_squares()
        calls = [(0, standalone.Update(kernel, each, each, {}), 0) for each in arrays]
        (total,) = _run(_alike([jnp.zeros((), "float64")], arrays), calls, {})
        (factor,) = clipping.factors_for(do, library.array(total), [limit])
        clipped = dict(updates)
        for i, each in rows.items():
            product = plain(do("Mul", library.array(each.values), factor))
            clipped[i] = updates[i]._replace(gradient=each._replace(values=product))
        return clipped, factor


def _run(changed: Sequence[Any], calls: Sequence[Any], given: Mapping[str, Any]) -> Sequence[Any]:
    """Runs all calls in one operation, and returns the new values of variables and slots.

    Without variables, which have the position 0, the result is the sum over the gradients.
    """
    # Small variables of the same kernel are shared out among threads.
    calls = sorted(calls, key=lambda each: (each[0], each[1].kernel.identity))
    kernels = {call.kernel.identity: call.kernel for _, call, _ in calls}
    scalars = [each for kernel in kernels.values() for each in kernel.inputs.scalars]
    operands = [*changed, *(jnp.asarray(given[x.name], dtype_of(x.dtype)) for x in scalars)]
    table: List[int] = []
    for _, call, place in calls:  # an operand has its position plus 1 in the table
        operands.append(call.gradient)
        gradient, ids = len(operands), 0
        if call.ids is not None:
            operands.append(call.ids)
            ids = len(operands)
        names = call.kernel.inputs.all_slots
        slots = [place + 1 + [*call.slots].index(each.name) for each in names]
        row = call.row_at(place, gradient, ids, slots)
        row[standalone.KERNEL] = [*kernels].index(call.kernel.identity)
        table += row
    keys, updates = "".join(map(_key, kernels.values())), tuple(table)
    return _PRIMITIVE.bind(*operands, results=len(changed), keys=keys, updates=updates)


def _alike(arrays: Sequence[Any], others: Iterable[Any]) -> List[Any]:
    """Returns arrays that vary over the same axes of `jax.shard_map` as all arrays together."""
    axes = frozenset().union(*[_axes(each) for each in (*arrays, *others) if each is not None])
    return [
        jax.lax.pcast(each, tuple(axes - _axes(each)), to="varying") if axes - _axes(each) else each
        for each in arrays
    ]


def _axes(array: Any) -> FrozenSet[Any]:
    return getattr(getattr(jax.typeof(array), "mat", None), "varying", frozenset())


# --- The operation of JAX. Its first operands and its results are the same memory.


def _refused(message: str, *_: Any, **__: Any) -> NoReturn:
    raise RecordError(f'native kernels {message}, or pass level="exact"')


def _lowered(ctx: Any, *operands: Any, results: int, keys: str, updates: Sequence[int]) -> Any:
    """Writes the operation for XLA on processors."""
    context = ctx.module_context.axis_context
    mesh = getattr(context, "mesh", None)
    manual = {*getattr(context, "manual_axes", ()), *getattr(mesh, "manual_axes", ())}
    if getattr(context, "num_devices", 1) > 1 or {*getattr(mesh, "axis_names", ())} - manual:
        # XLA would gather the arrays, and make the step on each device.
        _refused("cannot be shared out among devices by XLA: call the step in jax.shard_map")
    aliases = {i: i for i in range(results)}
    rule = jax.ffi.ffi_lowering(xla.target(), operand_output_aliases=aliases)
    return rule(ctx, *operands, keys=keys, updates=np.array(updates, np.int64))


def _run_now(*operands: Any, **params: Any) -> Any:
    with jax.disable_jit(False):
        return _compiled(*operands, **params)


_PRIMITIVE = Primitive("legacy_opt_native")
_PRIMITIVE.multiple_results = True
_compiled = jax.jit(_PRIMITIVE.bind, static_argnames=("results", "keys", "updates"))
_PRIMITIVE.def_abstract_eval(lambda *avals, results, **_: avals[:results])
_PRIMITIVE.def_impl(_run_now)
mlir.register_lowering(_PRIMITIVE, _lowered, platform="cpu")
_ON_CPU = "train on processors only: put the arrays on jax.devices('cpu')"
mlir.register_lowering(_PRIMITIVE, functools.partial(_refused, _ON_CPU))
_OF_LOSS = "have no gradients: differentiate the loss without the step"
ad.primitive_jvps[_PRIMITIVE] = functools.partial(_refused, _OF_LOSS)
_IN_TURN = "cannot run in jax.vmap: use jax.lax.map"  # a norm would be that of the batch
batching.primitive_batchers[_PRIMITIVE] = functools.partial(_refused, _IN_TURN)
