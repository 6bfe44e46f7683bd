"""Changes of an array around a save and a load. A change is named if it gives the exact result."""

from __future__ import annotations

import collections
import itertools
import re
from typing import Any, Iterator, Optional, Tuple

import numpy as np

from legacy_opt.proofs.states import STEPS, Key, State, label

Change = Tuple[str, str]  # the cause, and a predicate for users
_BETAS = (0.9, 0.999, 0.99, 0.95, 0.98, 0.5)
_INITIAL = (0, 0.1, 1)  # usual initial values of slots, biases and variances
_MOST_POWERS = 100_000
_NARROW = ("bfloat16", "float16", "float32")
_AVERAGE = re.compile(r"average|avg|(?<![a-z])(?:ema|swa)(?![a-z])", re.IGNORECASE)


def same(x: Any, y: Any) -> bool:
    """Whether two arrays have the same shape and values; NaN is the same as NaN."""
    if x.shape == y.shape == ():  # also texts
        x, y = x.item(), y.item()
        return x == y or (x != x and y != y)
    return x.shape == y.shape and bool(np.all((x == y) | ((x != x) & (y != y))))


def _rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    """Returns an array of float32 or float64 with the precision of another dtype."""
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return x.astype(dtype).astype(x.dtype)
    bits = np.ascontiguousarray(x, "float32").view("uint32")
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000  # to the nearest, or the even one
    return np.where(x == x, bits.view("float32").reshape(x.shape), x).astype(x.dtype)


def change(key: Key, before: State, after: State) -> Optional[Change]:
    """Returns the change of a value between two states; None if it is the same.

    The cause is "" if no change of the state before gives the value after.
    """
    old, new = before.values[key], after.values.get(key)
    if new is None:
        kept = before.values
        others = (x for x in _holders(key, old, after) if x not in kept or not same(kept[x], old))
        other = next(others, None)
        where = "" if other is None else f"; its value is in {label(other)}"
        return "missing" if other is None else "moved", f"is missing{where}"
    dtypes = before.dtypes[key], after.dtypes[key]
    if old.size == new.size == 1 and "" in dtypes:  # a number, and a tensor instead
        old, new = old.reshape(()), new.reshape(())
    if same(old, new):
        is_cast = old.ndim > 0 and dtypes[0] != dtypes[1]
        return ("cast", f"was cast to {dtypes[1]}, with the same values") if is_cast else None
    # Before a cast: small numbers become 0 in float16, too.
    value = new.flat[0] if new.ndim and new.size and np.all(new == new.flat[0]) else None
    known = _INITIAL if new.size > 1 else (0,)
    if value is not None and value in [new.dtype.type(x) for x in known]:
        return "lost", f"is lost: all elements are {value:g}"
    if old.dtype.kind == new.dtype.kind == "f":
        for dtype in _NARROW if new.ndim else {dtypes[1]}.intersection(_NARROW):
            if same(_rounded(old, dtype), new.astype(old.dtype)):
                return "cast", f"was cast to {dtype}"
    if not new.ndim and not old.ndim:
        return _change_of_scalar(key, before, old, new)
    for found in (_moved(key, new, before), _transposed(old, new), _reordered(old, new)):
        if found is not None:
            return found
    if old.shape != new.shape:
        return "", f"has the shape {list(new.shape)} instead of {list(old.shape)}"
    count = int(np.sum((old != new) & ((old == old) | (new == new))))
    return "", f"differs in {count} of {old.size} elements"


def _change_of_scalar(key: Key, before: State, old: Any, new: Any) -> Change:
    name, found = key[1] or key[0], f"is {new} instead of {old}"
    if name.rpartition(".")[2] in STEPS:
        return "step", found + (": it is of another step" if new else ": it was reset")
    for beta in _BETAS if "power" in name else ():  # float32 was multiplied, as TensorFlow does
        powers = np.multiply.accumulate(np.full(_MOST_POWERS, beta, "float32"))
        counts = [next(iter(np.flatnonzero(powers == x) + 1), None) for x in (old, new)]
        if None not in counts:
            after = f": the power {counts[1]} of {beta:g} instead of {counts[0]}"
            return "lost" if counts[1] == 1 else "step", found + after
    initial = before.values.get((key[0], f"initial_{key[1]}"))
    if initial is not None and same(new, initial):
        return "reset", f"{found}: it was reset to its initial value"
    is_number = not before.dtypes[key] or name == "learning_rate"
    return "changed" if is_number else "", found


def _holders(key: Key, array: np.ndarray, state: State) -> Iterator[Key]:
    """Yields the other keys with this value; those of the same variable or slot come first."""
    is_clear = array.size and not np.all(array == (array.flat[0] if array.size > 1 else 0))
    near = sorted(state.values, key=lambda other: (other[0] != key[0], other[1] != key[1]))
    for other in near if is_clear and array.ndim else ():
        value = state.values[other]
        if other != key and value.dtype == array.dtype and same(value, array):
            yield other


def _moved(key: Key, new: np.ndarray, before: State) -> Optional[Change]:
    other = next(_holders(key, new, before), None)
    if other is None:
        return None
    is_average = not key[1] and key[0] in other and _AVERAGE.search(" ".join(other))
    found = f"has the value of {label(other)}"
    return ("average", f"{found}, its average") if is_average else ("moved", found)


def _transposed(old: np.ndarray, new: np.ndarray) -> Optional[Change]:
    orders = itertools.permutations(range(old.ndim)) if 1 < old.ndim < 6 else ()
    for axes in itertools.islice(orders, 1, None):
        moved = old.transpose(axes)
        if same(moved, new):
            return "transposed", f"is transposed: its axes are {list(axes)}"
        if moved.size == new.size and same(moved.reshape(new.shape), new):
            return "transposed", "is the memory of its transpose, in the old shape"
    return None


def _reordered(old: np.ndarray, new: np.ndarray) -> Optional[Change]:
    if old.shape != new.shape or old.dtype != new.dtype:
        return None
    for axis in range(old.ndim):
        rows = [[each.tobytes() for each in np.moveaxis(x, axis, 0)] for x in (old, new)]
        if collections.Counter(rows[0]) != collections.Counter(rows[1]):
            continue
        places = {row: i for i, row in enumerate(rows[0])}
        found = np.array([places[row] for row in rows[1]])
        runs = np.split(found, np.flatnonzero(np.diff(found) != 1) + 1)
        parts = [f"{run[0]} to {run[-1]}" for run in runs[:5]]
        what = f"has the parts of axis {axis} in another order"
        return "reordered", f"{what}: {', '.join(parts)}{' …' if len(runs) > 5 else ''}"
    return None
