"""The operations of programs: one row for each, which kernels, records and all targets read.

A new operation is a row here, and numbers in tests/recorded/test_operations.py, which computes each
row on every target.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple, Union

from legacy_opt.programs import elementary

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")
NUMBERS = (*FLOATS, *INTEGERS)
DTYPES = (*NUMBERS, "bool")
HALF = ("bfloat16", "float16")  # records have no values of these dtypes
KERNEL_DTYPES = (*DTYPES, *HALF)

# Operations that reduce several values to one. The values are all elements of a variable, the
# elements of a row or column of a matrix, or the values of all rows of a matrix.
SUMS = ("Sum", "Mean")

# Whether the quotient of integers, rounded down, is less than C's quotient, rounded towards 0.
_FLOOR_IS_LESS = "(({0} % {1} != 0) & (({0} < 0) != ({1} < 0)))"


class Operation(NamedTuple):
    """An operation."""

    operands: Optional[int]  # the number of operands; None means at least one
    # All operands have the same dtype, one of these. In kernels, `FLOATS` includes `HALF`.
    dtypes: Sequence[str]
    # The C expression, in which {0}, {1}, … are the operands, {type} is the C type of the result
    # and {f} is the suffix of C functions ("f" for float, empty for double); or a function that
    # takes the operands, and by keywords `rounded` (a function that rounds an expression to the
    # dtype) and `f`; or None if `native.compiler.expressions` writes it.
    code: Union[str, Callable[..., str], None]
    # Computes the operation with the arrays of any library. The arguments are a
    # `recorded.arrays.interpreter.Computation` and the operands. None if the interpreter itself
    # computes it.
    meaning: Optional[Callable[..., Any]]
    rounds: bool = False  # whether the result is rounded; False if it is always exact
    # The dtype of the result: "same" as the operands, "bool", "any", or "choice" (the dtype of the
    # second and third operand; the first operand is a bool).
    result: str = "same"
    # For a division, the C expression for integers, and another one for the divisor -1, because
    # x86-64 processors raise an error if they divide the lowest integer by -1.
    integer_code: Optional[Tuple[str, str]] = None
    # For an elementary function: computes it in float64, to be rounded once. `meaning` is None.
    function: Optional[Callable[..., Any]] = None
    fast: str = ""  # the name of the elementary function in PyTorch and in JAX

    def dtype_of_result(self, dtypes: Sequence[str]) -> Optional[str]:
        """Returns the dtype of the result; None if the operands cannot have these dtypes."""
        if self.result == "any":
            return "any"
        if self.result == "choice":
            return dtypes[1] if dtypes[0] == "bool" and dtypes[1] == dtypes[2] else None
        if len(set(dtypes)) > 1 or dtypes[0] not in self.dtypes:
            return None
        return "bool" if self.result == "bool" else dtypes[0]


def _maximum(do: Any, a: Any, b: Any) -> Any:
    return do.where(a != a, a, do.where(b != b, b, do.where(a < b, b, a)))


def _minimum(do: Any, a: Any, b: Any) -> Any:
    return do.where(a != a, a, do.where(b != b, b, do.where(b < a, b, a)))


def _sign(do: Any, a: Any) -> Any:
    one, zero = do.number(1), do.number(0)
    return do.where(a != a, a, do.where(a > 0, one, do.where(a < 0, -one, zero)))


def _square_of_difference(a: str, b: str, rounded: Callable[[str], str], f: str) -> str:
    del f
    difference = rounded(f"{a} - {b}")
    return f"({difference}) * ({difference})"


def _softplus_grad(a: str, b: str, rounded: Callable[[str], str], f: str) -> str:
    # TensorFlow's formula: gradients / (exp(-features) + 1)
    exp = rounded(f"lo_exp{f}(-{b})")
    return f"{a} / ({rounded(f'{exp} + 1')})"


def _comparison(operator: str, meaning: Callable[..., Any]) -> Operation:
    return Operation(2, DTYPES, f"{{0}} {operator} {{1}}", meaning, result="bool")


def _function(operands: int, code: str, function: Callable[..., Any], fast: str) -> Operation:
    return Operation(
        operands, FLOATS, code, meaning=None, rounds=True, function=function, fast=fast
    )


_exact = functools.partial(Operation, rounds=False)
_rounded = functools.partial(Operation, rounds=True)
# A starred tuple only keeps the number of operands, the dtypes and the C code on one line.
OPERATIONS: Dict[str, Operation] = {
    "Abs": _exact(1, NUMBERS, "{0} < 0 ? -{0} : {0} + 0", lambda do, a: abs(a)),  # -0.0 + 0 is 0.0
    "Add": _rounded(2, NUMBERS, "{0} + {1}", lambda do, a, b: a + b),
    "AddN": _rounded(
        *(None, NUMBERS, lambda *operands, **_: " + ".join(operands)),
        lambda do, *operands: functools.reduce(functools.partial(do, "Add"), operands),
    ),
    "Cast": _exact(1, DTYPES, None, None, result="any"),
    "ClipByValue": _exact(
        *(3, FLOATS, "LO_MINIMUM(LO_MAXIMUM({0}, {1}), {2})"),
        lambda do, a, b, c: _minimum(do, _maximum(do, a, b), c),
    ),
    "DivNoNan": _rounded(
        *(2, FLOATS, "{1} == 0 ? 0 : {0} / {1}"),
        lambda do, a, b: do.where(b == do.number(0), do.number(0), a / b),
    ),
    "Equal": _comparison("==", lambda do, a, b: a == b),
    "Exp": _function(1, "lo_exp{f}({0})", elementary.exp, "exp"),
    "Expm1": _function(1, "lo_expm1{f}({0})", elementary.expm1, "expm1"),
    "FloorDiv": _exact(
        *(2, INTEGERS, None, lambda do, a, b: a // b),
        integer_code=("{0} / {1} - " + _FLOOR_IS_LESS, "-{0}"),
    ),
    "FloorMod": _exact(
        *(2, INTEGERS, None, lambda do, a, b: a % b),
        integer_code=("{0} % {1} + (" + _FLOOR_IS_LESS + " ? {1} : 0)", "0"),
    ),
    "Greater": _comparison(">", lambda do, a, b: a > b),
    "GreaterEqual": _comparison(">=", lambda do, a, b: a >= b),
    "Less": _comparison("<", lambda do, a, b: a < b),
    "LessEqual": _comparison("<=", lambda do, a, b: a <= b),
    "Log": _function(1, "lo_log{f}({0})", elementary.log, "log"),
    "Log1p": _function(1, "lo_log1p{f}({0})", elementary.log1p, "log1p"),
    "LogicalAnd": _exact(2, ("bool",), "{0} & {1}", lambda do, a, b: a & b),
    "LogicalNot": _exact(1, ("bool",), "!{0}", lambda do, a: a == do.number(False)),
    "LogicalOr": _exact(2, ("bool",), "{0} | {1}", lambda do, a, b: a | b),
    "Maximum": _exact(2, NUMBERS, "LO_MAXIMUM({0}, {1})", _maximum),
    "Mean": _rounded(1, FLOATS, None, None),
    "Minimum": _exact(2, NUMBERS, "LO_MINIMUM({0}, {1})", _minimum),
    "Mul": _rounded(2, NUMBERS, "{0} * {1}", lambda do, a, b: a * b),
    "Neg": _exact(1, NUMBERS, "-{0}", lambda do, a: -a),
    "NotEqual": _comparison("!=", lambda do, a, b: a != b),
    "Pow": _function(2, "lo_pow{f}({0}, {1})", elementary.power, "pow"),
    "RealDiv": _rounded(
        *(2, FLOATS, "{0} / {1}", lambda do, a, b: a / b), integer_code=("{0} / {1}", "-{0}")
    ),
    "Reciprocal": _rounded(1, FLOATS, "1 / {0}", lambda do, a: do.number(1) / a),
    "Rsqrt": _rounded(
        *(1, FLOATS, "1 / __builtin_sqrt{f}({0})"),
        lambda do, a: do("Reciprocal", do("Sqrt", a)),
    ),
    "Select": _exact(
        *(3, DTYPES, "{0} ? {1} : {2}", lambda do, a, b, c: do.where(a, b, c)), result="choice"
    ),
    "Sigmoid": _function(1, "lo_sigmoid{f}({0})", elementary.sigmoid, "sigmoid"),
    "Sign": _exact(1, FLOATS, "{0} != {0} ? {0} : ({type})(({0} > 0) - ({0} < 0))", _sign),
    "SoftplusGrad": _rounded(
        *(2, FLOATS, _softplus_grad),
        lambda do, a, b: do("RealDiv", a, do("Add", do("Exp", do("Neg", b)), 1)),
    ),
    "Sqrt": _rounded(1, FLOATS, "__builtin_sqrt{f}({0})", lambda do, a: do.library.sqrt(a)),
    "Square": _rounded(1, NUMBERS, "{0} * {0}", lambda do, a: a * a),
    "SquaredDifference": _rounded(
        *(2, NUMBERS, _square_of_difference), lambda do, a, b: do("Square", do("Sub", a, b))
    ),
    "Sub": _rounded(2, NUMBERS, "{0} - {1}", lambda do, a, b: a - b),
    "Sum": _rounded(1, FLOATS, None, None),
    "Tanh": _function(1, "lo_tanh{f}({0})", elementary.tanh, "tanh"),
}
COMPARISONS = [name for name, each in OPERATIONS.items() if each.result == "bool"]
# Operations that targets compute in float64.
WIDE = [*SUMS, "SoftplusGrad", *(name for name, each in OPERATIONS.items() if each.function)]
