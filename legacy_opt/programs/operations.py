"""The operations of recorded rules, with the numbers of their operands and their dtypes."""

from __future__ import annotations

from typing import Callable, Dict, NamedTuple, Optional, Sequence

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")
DTYPES = (*FLOATS, *INTEGERS, "bool")

# Operations that reduce several values to one.
SUMS = ("Sum", "Mean")


class Operation(NamedTuple):
    """What is allowed for an operation.

    Attributes:
      operands: the number of operands; None means at least one.
      dtype_of_result: a function that takes the operands' dtypes, and returns the dtype of the
        result; None if the dtypes are not allowed, and "any" if any dtype is allowed.
    """

    operands: Optional[int]
    dtype_of_result: Callable[[Sequence[str]], Optional[str]]


def _same(allowed: Sequence[str]) -> Callable[[Sequence[str]], Optional[str]]:
    def dtype_of_result(dtypes):
        is_allowed = len(set(dtypes)) == 1 and dtypes[0] in allowed
        return dtypes[0] if is_allowed else None

    return dtype_of_result


def _comparison(dtypes):
    return "bool" if len(set(dtypes)) == 1 else None


def _choice(dtypes):
    return dtypes[1] if dtypes[0] == "bool" and dtypes[1] == dtypes[2] else None


def _table() -> Dict[str, Operation]:
    numbers = (*FLOATS, *INTEGERS)
    table = {"Cast": Operation(1, lambda dtypes: "any"), "Select": Operation(3, _choice)}
    for dtypes, counts in (
        (numbers, {"Abs": 1, "AddN": None, "Add": 2, "Maximum": 2, "Minimum": 2, "Mul": 2}),
        (numbers, {"Neg": 1, "Square": 1, "SquaredDifference": 2, "Sub": 2}),
        (INTEGERS, {"FloorDiv": 2, "FloorMod": 2}),
        (("bool",), {"LogicalAnd": 2, "LogicalNot": 1, "LogicalOr": 2}),
        (FLOATS, {"ClipByValue": 3, "DivNoNan": 2, "Exp": 1, "Expm1": 1, "Log": 1, "Log1p": 1}),
        (FLOATS, {"Mean": 1, "Pow": 2, "RealDiv": 2, "Reciprocal": 1, "Rsqrt": 1, "Sigmoid": 1}),
        (FLOATS, {"Sign": 1, "SoftplusGrad": 2, "Sqrt": 1, "Sum": 1, "Tanh": 1}),
    ):
        table.update((name, Operation(count, _same(dtypes))) for name, count in counts.items())
    for name in "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual":
        table[name] = Operation(2, _comparison)
    return table


TABLE = _table()
