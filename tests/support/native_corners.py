"""Operations with corners, such as casts of NaN, and numbers at which they have them.

`make bits`, `make sanitize` and the tests of native kernels run these operations.
"""

import numpy as np
import tensorflow as tf

from legacy_opt.native.runtime import standalone
from legacy_opt.programs.program import ASSIGN, ELEMENT, GRADIENT, VALUE, Input
from legacy_opt.programs.trace import Results, trace

DTYPES = ("float32", "float64", "bfloat16", "float16", "int32", "int64")
DIVISORS = {"int32": (-1, 7, -3, 2**31 - 1), "int64": (-1, 10, -(2**63), 2**63 - 1)}
_EXPONENTS = (0, 1, -1, 2, 3, -3, 0.5, -0.5, -1.5, 2.0**53 - 1, 2.0**53, -1e300)
_EXPONENTS += (np.inf, -np.inf, np.nan)
_NUMBERS = (0, 0.3, 0.5, 0.999, 1, 1.5, 2, 3, 1e5, 65519, 65520, 3e9, 1e19, 1e30, 1e300, np.inf)
_POWERS_OF_2 = (24, 31, 32, 53, 63, 64)  # the limits of integers, and of exact integers in floats


def groups(dtype):
    """Yields dicts {name: (function, dtype of the result)}; a kernel has room for one dict.

    Args:
      dtype: the dtype of the two arguments of each function.
    """
    casts = {
        f"cast to {result}": (lambda x, _, result=result: tf.cast(x, result), result)
        for result in (*DTYPES, "bool")
        if result != dtype
    }
    yield casts
    if dtype not in DIVISORS:
        there_and_back = {
            f"through {name}": (lambda x, _, name=name: tf.cast(tf.cast(x, name), dtype), dtype)
            for name in DIVISORS
        }
        yield dict(there_and_back, power=(tf.pow, dtype))
        return
    divisions = {}
    for divisor in DIVISORS[dtype]:
        divisions[f"// {divisor}"] = (lambda x, _, divisor=divisor: x // divisor, dtype)
        divisions[f"% {divisor}"] = (lambda x, _, divisor=divisor: x % divisor, dtype)
    yield divisions


def program(group, dtype):
    """Returns a program that computes each operation of a group, and the slots for the results.

    The first argument is the gradient, the second is the variable.
    """
    first, second = Input(GRADIENT, ELEMENT, dtype), Input(VALUE, ELEMENT, dtype)
    slots = [Input(name, ELEMENT, result, is_slot=True) for name, (_, result) in group.items()]

    def rule(tensors):
        given = tensors[first], tensors[second]
        changes = {name: (ASSIGN, function(*given), None) for name, (function, _) in group.items()}
        return Results(None, changes, tensors[second])

    return trace([first, second, *slots], [None], rule), slots


def numbers(dtype):
    """Returns arrays of first and second arguments, in all combinations."""
    if dtype in DIVISORS:
        limits = np.iinfo(dtype)
        found = {limits.min, limits.max, *range(-9, 10), 10**9, 65519, 65520}
        found |= {
            sign * 2**power + k for power in _POWERS_OF_2 for sign in (1, -1) for k in (-1, 1)
        }
        first = sorted(each for each in found if limits.min <= each <= limits.max)
        return np.array(first, dtype), np.zeros(len(first), dtype)
    found = list(_NUMBERS)
    for power in _POWERS_OF_2:
        for kind in (np.float32, np.float64):
            limit = kind(2.0**power)
            found += [limit, np.nextafter(limit, kind(0)), np.nextafter(limit, kind(np.inf))]
    found = np.array(found, np.float64)
    pairs = np.meshgrid([*found, *-found, np.nan], _EXPONENTS)
    with np.errstate(over="ignore"):
        narrow = [
            each.ravel().astype("float64" if dtype == "float64" else "float32") for each in pairs
        ]
        return [each.astype(tf.as_dtype(dtype).as_numpy_dtype) for each in narrow]


def run(kernel, dtype):
    """Runs the kernel of a `program` on all `numbers`; returns a dict from slot to array."""
    first, second = numbers(dtype)
    slots = {
        slot.name: np.zeros(len(first), tf.as_dtype(slot.dtype).as_numpy_dtype)
        for slot in kernel.inputs.slots
    }
    standalone.update(kernel, second, first, slots, {})
    return slots
