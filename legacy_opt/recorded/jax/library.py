"""The operations of JAX, with which recorded rules run."""

from __future__ import annotations

import operator
from typing import Any, Callable

import jax
import jax.numpy as jnp

from legacy_opt.recorded.arrays.library import Library


def hidden_zero(*arrays: Any) -> Any:
    """Returns an integer that is zero, which a compiler does not know.

    No square has the remainder 2 when divided by 3. One of the arrays must not be a constant of the
    program.
    """
    # The first element of each array, or 0 if the array is empty.
    firsts = [each[(slice(1),) * each.ndim].sum().astype("int32") for each in arrays]
    number = sum(firsts) & 0xFFF
    return number * number % 3 // 2


def _bits(x: Any) -> Any:
    return jax.lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}")


# Some versions of XLA remove `jax.lax.optimization_barrier` before LLVM merges operations.
@jax.custom_jvp
def _hidden(x: Any, zero: Any) -> Any:
    """Hides from the compiler how floats were computed, so that it rounds them."""
    bits = _bits(x)
    # "|", because XLA would cancel two exclusive ors of the same numbers.
    return jax.lax.bitcast_convert_type(bits | zero.astype(bits.dtype), x.dtype)


_hidden.defjvp(lambda values, tangents: (_hidden(*values), tangents[0]))


def _operator(function: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: self.made(function(self.array, plain(other)))


def _reflected(function: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: self.made(function(plain(other), self.array))


class Exact:
    """An array whose operators round as IEEE 754 says, also in a function that XLA compiles.

    XLA itself would compute a product and a sum with one rounding, and rewrite divisions. `zero` is
    an integer that is zero, which the compiler does not know.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: Any, zero: Any) -> None:
        self.array = array
        self.zero = zero

    def made(self, array: Any) -> Exact:
        """Returns the result of an operation; XLA must round it."""
        is_float = jnp.issubdtype(array.dtype, jnp.floating)
        return Exact(_hidden(array, self.zero) if is_float else array, self.zero)

    def __truediv__(self, other: Any) -> Exact:
        # XLA would multiply by the reciprocal of a scalar, but not of an array.
        a, b = jnp.broadcast_arrays(self.array, plain(other))
        return self.made(a / _hidden(b, _bits(a) & self.zero))

    def __rtruediv__(self, other: Any) -> Exact:
        return Exact(other, self.zero) / self

    @property
    def shape(self) -> Any:
        return self.array.shape

    def reshape(self, *shape: Any) -> Exact:
        return Exact(self.array.reshape(*shape), self.zero)

    def __getitem__(self, place: Any) -> Exact:
        return Exact(self.array[place], self.zero)

    def __neg__(self) -> Exact:
        return Exact(-self.array, self.zero)

    def __abs__(self) -> Exact:
        return Exact(abs(self.array), self.zero)

    __add__, __radd__ = _operator(operator.add), _reflected(operator.add)
    __sub__, __rsub__ = _operator(operator.sub), _reflected(operator.sub)
    __mul__, __rmul__ = _operator(operator.mul), _reflected(operator.mul)
    __floordiv__, __mod__ = _operator(operator.floordiv), _operator(operator.mod)
    __and__, __or__ = _operator(operator.and_), _operator(operator.or_)
    __lshift__, __rshift__ = _operator(operator.lshift), _operator(operator.rshift)
    __lt__, __le__ = _operator(operator.lt), _operator(operator.le)
    __gt__, __ge__ = _operator(operator.gt), _operator(operator.ge)
    __eq__, __ne__ = _operator(operator.eq), _operator(operator.ne)


def plain(x: Any) -> Any:
    """Returns the array of JAX in an `Exact` array. Returns other values unchanged."""
    return x.array if isinstance(x, Exact) else x


def dtype_of(name: str) -> Any:
    """Returns a dtype; without `jax_enable_x64`, one of 32 bits in place of 64."""
    return jax.dtypes.canonicalize_dtype(name)


class JaxLibrary(Library):
    """The operations of JAX. Except with "fast", all arrays are `Exact`; see there for `zero`."""

    def __init__(self, level: str, zero: Any = None) -> None:
        super().__init__(level)
        self._zero = zero

    def fast(self, name: str) -> Any:
        return getattr(jnp, name, None) or getattr(jax.nn, name)

    def array(self, x: Any) -> Any:
        return Exact(x, self._zero).made(x) if self._is_exact else x

    def plain(self, x: Any) -> Any:
        return plain(x)

    def _made(self, x: Any) -> Any:
        """Returns the result of an operation that does not round."""
        return Exact(x, self._zero) if self._is_exact else x

    def constant(self, value: Any, dtype: str) -> Any:
        return self._made(jnp.asarray(value, dtype_of(dtype)))

    def zeros_like(self, x: Any) -> Any:
        return jnp.zeros_like(x)

    def cast(self, x: Any, dtype: str) -> Any:
        x = plain(x)
        if jnp.issubdtype(x.dtype, jnp.floating) and dtype.startswith("int"):
            whole = dtype_of(dtype)
            inside = jnp.abs(x) < 2.0 ** (jnp.iinfo(whole).bits - 1)
            whole_x = jnp.where(inside, x, 0).astype(whole)
            return self._made(jnp.where(inside, whole_x, jnp.iinfo(whole).min))
        return self.array(x.astype(dtype_of(dtype)))

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return self._made(jnp.where(plain(condition), plain(x), plain(y)))

    def sqrt(self, x: Any) -> Any:
        return self.array(jnp.sqrt(plain(x)))

    def copied(self, x: Any) -> Any:
        return x

    def expanded(self, x: Any, shape: Any) -> Any:
        return self._made(jnp.broadcast_to(plain(x), shape))

    def bits(self, x: Any) -> Any:
        return self._made(jax.lax.bitcast_convert_type(plain(x), jnp.int64))

    def of_bits(self, bits: Any) -> Any:
        return self._made(jax.lax.bitcast_convert_type(plain(bits), jnp.float64))

    def in_order(self, x: Any, axis: int) -> Any:
        # Not `jnp.cumsum`, which adds in another order.
        parts = jnp.moveaxis(plain(x), axis, 0)
        total, _ = jax.lax.scan(
            lambda total, part: (total + part, None),
            jnp.zeros_like(parts, shape=parts.shape[1:]),
            parts,
        )
        return self._made(total)

    def summed_in_place(self, rows: Any) -> Any:
        return rows.summed_in_place(self)

    def padded(self, x: Any, multiple: int) -> Any:
        x = plain(x)
        sizes = [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % multiple)]
        return self._made(jnp.pad(x, sizes))
