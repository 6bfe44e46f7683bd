"""The operations of JAX, with which recorded rules run."""

from __future__ import annotations

import operator
from typing import Any, Callable

import jax
import jax.numpy as jnp

from legacy_opt.recorded.library import Library


def rounded(x: Any) -> Any:
    """Hides from XLA how floats were computed, so that it rounds them, and rewrites nothing."""
    return jax.lax.optimization_barrier(x) if jnp.issubdtype(x.dtype, jnp.floating) else x


def _quotient(a: Any, b: Any) -> Any:
    # XLA would multiply by the reciprocal of a scalar, but not of an array.
    shape = jnp.broadcast_shapes(jnp.shape(a), jnp.shape(b))
    a, b = (rounded(jnp.broadcast_to(each, shape)) for each in (a, b))
    return a / b


def _operator(function: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: Exact(rounded(function(self.array, plain(other))))


def _reflected(function: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: Exact(rounded(function(plain(other), self.array)))


class Exact:
    """An array whose operators round as IEEE 754 says, also in a function that XLA compiles.

    XLA would compute a product and a sum with one rounding, and rewrite divisions.

    Attributes:
      array: the array of JAX.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def shape(self) -> Any:
        """The shape of the array."""
        return self.array.shape

    def reshape(self, *shape: Any) -> Exact:
        """Returns the array with another shape."""
        return Exact(self.array.reshape(*shape))

    def __getitem__(self, place: Any) -> Exact:
        return Exact(self.array[place])

    def __neg__(self) -> Exact:
        return Exact(-self.array)

    __add__, __radd__ = _operator(operator.add), _reflected(operator.add)
    __sub__, __rsub__ = _operator(operator.sub), _reflected(operator.sub)
    __mul__, __rmul__ = _operator(operator.mul), _reflected(operator.mul)
    __truediv__, __rtruediv__ = _operator(_quotient), _reflected(_quotient)
    __floordiv__, __mod__ = _operator(operator.floordiv), _operator(operator.mod)
    __and__, __or__ = _operator(operator.and_), _operator(operator.or_)
    __lshift__, __rshift__ = _operator(operator.lshift), _operator(operator.rshift)
    __lt__, __le__ = _operator(operator.lt), _operator(operator.le)
    __gt__, __ge__ = _operator(operator.gt), _operator(operator.ge)
    __eq__, __ne__ = _operator(operator.eq), _operator(operator.ne)


def plain(x: Any) -> Any:
    """Returns the array of JAX in an `Exact` array, and anything else as it is."""
    return x.array if isinstance(x, Exact) else x


def dtype_of(name: str) -> Any:
    """Returns a dtype; without `jax_enable_x64`, JAX has none of 64 bits."""
    return jax.dtypes.canonicalize_dtype(name)


class JaxLibrary(Library):
    """The operations of JAX.

    Args:
      level: "exact" or "fast". With "exact", all arrays are `Exact`.
    """

    fast_functions = {
        "Exp": jnp.exp,
        "Expm1": jnp.expm1,
        "Log": jnp.log,
        "Log1p": jnp.log1p,
        "Pow": jnp.power,
        "Sigmoid": jax.nn.sigmoid,
        "Tanh": jnp.tanh,
    }

    def array(self, x: Any) -> Any:
        return Exact(rounded(x)) if self._is_exact else x

    def plain(self, x: Any) -> Any:
        return plain(x)

    def _made(self, x: Any) -> Any:
        return Exact(x) if self._is_exact else x

    def constant(self, value: Any, dtype: str) -> Any:
        return self._made(jnp.asarray(value, dtype_of(dtype)))

    def cast(self, x: Any, dtype: str) -> Any:
        x = plain(x)
        if jnp.issubdtype(x.dtype, jnp.floating) and dtype.startswith("int"):
            whole = dtype_of(dtype)
            inside = jnp.abs(x) < 2.0 ** (jnp.iinfo(whole).bits - 1)
            whole_x = jnp.where(inside, x, 0).astype(whole)
            return self._made(jnp.where(inside, whole_x, jnp.iinfo(whole).min))
        x = x.astype(dtype_of(dtype))
        return Exact(rounded(x)) if self._is_exact else x

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return self._made(jnp.where(plain(condition), plain(x), plain(y)))

    def sqrt(self, x: Any) -> Any:
        return Exact(rounded(jnp.sqrt(plain(x)))) if self._is_exact else jnp.sqrt(x)

    def copied(self, x: Any) -> Any:
        return x

    def expanded(self, x: Any, shape: Any) -> Any:
        return self._made(jnp.broadcast_to(plain(x), shape))

    def abs(self, x: Any) -> Any:
        return self._made(jnp.abs(plain(x)))

    def copysign(self, x: Any, sign: Any) -> Any:
        return self._made(jnp.copysign(plain(x), plain(sign)))

    def bits(self, x: Any) -> Any:
        return self._made(jax.lax.bitcast_convert_type(plain(x), jnp.int64))

    def of_bits(self, bits: Any) -> Any:
        return self._made(jax.lax.bitcast_convert_type(plain(bits), jnp.float64))

    def to_int64(self, x: Any) -> Any:
        return self._made(plain(x).astype(jnp.int64))

    def to_float64(self, x: Any) -> Any:
        return self._made(plain(x).astype(jnp.float64))

    def fast_sum(self, x: Any, axis: Any) -> Any:
        return x.sum(axis, keepdims=axis is not None)

    def in_order(self, x: Any, axis: int) -> Any:
        # The cumulative sum of JAX adds in another order.
        parts = jnp.moveaxis(plain(x), axis, 0)
        total, _ = jax.lax.scan(
            lambda total, part: (total + part, None),
            jnp.zeros_like(parts, shape=parts.shape[1:]),
            parts,
        )
        return self._made(total)

    def padded(self, x: Any, multiple: int) -> Any:
        x = plain(x)
        sizes = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % multiple)]
        return self._made(jnp.pad(x, sizes))
