"""The C code of dtypes, numbers and elementwise operations."""

from __future__ import annotations

import math
from typing import Any, Sequence

from legacy_opt.programs.program import Node, UnsupportedError

# For each dtype: its number in TensorFlow, the C type of stored values, and the C type of
# computations.
DTYPES = {
    "float32": (1, "float", "float"),
    "float64": (2, "double", "double"),
    "int32": (3, "int32_t", "int32_t"),
    "int64": (9, "int64_t", "int64_t"),
    "bool": (10, "uint8_t", "int"),
    "bfloat16": (14, "uint16_t", "float"),
    "float16": (19, "uint16_t", "float"),
}
_16_BITS = ("bfloat16", "float16")

# In these tables, {0}, {1}, … are the inputs of an operation. {type} is the result's C type. {f} is
# the suffix of C functions: "f" for float, empty for double.
# Operations of all dtypes whose results need no rounding to a 16-bit dtype.
_EXACT = {
    "Abs": "{0} < 0 ? -{0} : {0} + 0",  # -0.0 + 0 is 0.0
    "Equal": "{0} == {1}",
    "Greater": "{0} > {1}",
    "GreaterEqual": "{0} >= {1}",
    "Less": "{0} < {1}",
    "LessEqual": "{0} <= {1}",
    "LogicalAnd": "{0} & {1}",
    "LogicalNot": "!{0}",
    "LogicalOr": "{0} | {1}",
    "Maximum": "LO_MAXIMUM({0}, {1})",
    "Minimum": "LO_MINIMUM({0}, {1})",
    "Neg": "-{0}",
    "NotEqual": "{0} != {1}",
    "Select": "{0} ? {1} : {2}",
}
# Operations of all dtypes whose results are rounded.
_ROUNDED = {
    "Add": "{0} + {1}",
    "Mul": "{0} * {1}",
    "RealDiv": "{0} / {1}",
    "Sub": "{0} - {1}",
    "Square": "{0} * {0}",
}
# Operations of floating point dtypes only, without and with rounding.
_FLOAT_EXACT = {
    "ClipByValue": "LO_MINIMUM(LO_MAXIMUM({0}, {1}), {2})",
    "Sign": "{0} != {0} ? {0} : ({type})(({0} > 0) - ({0} < 0))",
}
_FLOAT = {
    "DivNoNan": "{1} == 0 ? 0 : {0} / {1}",
    "Exp": "lo_exp{f}({0})",
    "Expm1": "lo_expm1{f}({0})",
    "Log": "lo_log{f}({0})",
    "Log1p": "lo_log1p{f}({0})",
    "Pow": "lo_pow{f}({0}, {1})",
    "Reciprocal": "1 / {0}",
    "Rsqrt": "1 / __builtin_sqrt{f}({0})",
    "Sigmoid": "lo_sigmoid{f}({0})",
    "Sqrt": "__builtin_sqrt{f}({0})",
    "Tanh": "lo_tanh{f}({0})",
}
# Operations that no table can describe. `expression` has their code.
_OTHERS = ("AddN", "Cast", "SoftplusGrad", "SquaredDifference")
# Whether the quotient of integers, rounded down, is less than C's quotient, rounded towards 0.
_FLOOR_IS_LESS = "(({0} % {1} != 0) & (({0} < 0) != ({1} < 0)))"
# {operation: division of an integer by a constant, division by -1}. On x86-64, the processor raises
# an error if it divides the lowest integer by -1.
_INTEGER_DIVISIONS = {
    "FloorDiv": ("{0} / {1} - " + _FLOOR_IS_LESS, "-{0}"),
    "FloorMod": ("{0} % {1} + (" + _FLOOR_IS_LESS + " ? {1} : 0)", "0"),
    "RealDiv": ("{0} / {1}", "-{0}"),
}
ELEMENTWISE = frozenset([*_EXACT, *_ROUNDED, *_FLOAT_EXACT, *_FLOAT, *_OTHERS, *_INTEGER_DIVISIONS])


def expression(node: Node) -> str:
    """Returns the C expression of an elementwise operation."""
    inputs = [text_of(each) for each in node.inputs]
    if node.operation == "Cast":
        return _cast(node, inputs[0])
    if node.operation == "AddN" and node.dtype not in _16_BITS:  # 16-bit sums are not supported
        return " + ".join(inputs)
    if node.operation == "SquaredDifference":
        difference = rounded(node.dtype, f"{inputs[0]} - {inputs[1]}")
        return rounded(node.dtype, f"({difference}) * ({difference})")
    if node.operation == "SoftplusGrad":  # TensorFlow's formula: gradients / (exp(-features) + 1)
        exp = rounded(node.dtype, f"lo_exp{_suffix(node.dtype)}(-{inputs[1]})")
        denominator = rounded(node.dtype, f"{exp} + 1")
        return rounded(node.dtype, f"{inputs[0]} / ({denominator})")
    is_float = _is_float(node.dtype)
    if node.operation in _INTEGER_DIVISIONS and not is_float:
        return _integer_division(node, inputs)
    exact = {**_EXACT, **_FLOAT_EXACT} if is_float else _EXACT
    inexact = {**_ROUNDED, **_FLOAT} if is_float else _ROUNDED
    template = exact.get(node.operation) or inexact.get(node.operation)
    if template is None:
        raise UnsupportedError(
            f"kernels do not support the operation {node.operation} in {node.dtype}"
        )
    code = template.format(*inputs, f=_suffix(node.dtype), type=type_of(node))
    return code if node.operation in exact else rounded(node.dtype, code)


def _cast(node: Node, code: str) -> str:
    (source,) = node.inputs
    if node.dtype == source.dtype:
        return code
    if node.dtype == "bool":
        return f"{code} != 0"
    if _is_float(source.dtype) and not _is_float(node.dtype):
        return f"lo_{node.dtype}_of_{type_of(source)}({code})"
    return rounded(node.dtype, f"({type_of(node)}){code}")


def _integer_division(node: Node, inputs: Sequence[str]) -> str:
    divisor = node.inputs[1]
    # TensorFlow raises an error when it divides an integer by zero. A kernel cannot.
    value = divisor.detail if divisor.operation == "Const" else None
    if value in (None, 0):
        raise UnsupportedError(
            f"kernels divide integers only by constants other than 0 ({node.operation} in "
            f"{node.dtype})"
        )
    division, division_by_minus_1 = _INTEGER_DIVISIONS[node.operation]
    return (division_by_minus_1 if value == -1 else division).format(*inputs)


def sum_of_integers(node: Node, total: str) -> str:
    """Returns the C expression of a sum of integers, which is computed in float64.

    Args:
      node: the sum.
      total: the C expression of its value in float64.

    Raises:
      UnsupportedError: float64 may not be exact, or the result is not a sum.
    """
    (operand,) = node.inputs
    # float64 adds int32 exactly, also if they are cast to int64.
    if operand.dtype == "int64" and operand.operation == "Cast":
        (operand,) = operand.inputs
    if node.operation != "Sum" or operand.dtype not in ("bool", "int32"):
        raise UnsupportedError(
            f"kernels do not support {node.operation} in {node.dtype}, unless it adds int32 or bool"
        )
    return f"({type_of(node)})lo_int64_of_double({total})"


def _is_float(dtype: str) -> bool:
    return dtype in ("bfloat16", "float16", "float32", "float64")


def name_of(node: Node) -> str:
    """Returns the C variable of a node."""
    return f"n{node.number}"


def text_of(node: Node) -> str:
    """Returns the C expression that reads a node: a variable, or the number of a constant."""
    return _literal(node.detail, node.dtype) if node.operation == "Const" else name_of(node)


def _literal(number: Any, dtype: str) -> str:
    if dtype == "bool":
        return str(int(number))
    if dtype.startswith("int"):
        return f"(({DTYPES[dtype][2]}){int(number)}LL)"
    number = float(number)
    if math.isnan(number):
        return "LO_NAN"
    if math.isinf(number):
        return "(-LO_INFINITY)" if number < 0 else "LO_INFINITY"
    return f"({number.hex()}{_suffix(dtype)})"


def _suffix(dtype: str) -> str:
    return "" if dtype == "float64" else "f"


def type_of(node: Node) -> str:
    """Returns the C type in which a node is computed."""
    return DTYPES[node.dtype][2]


def stored_type(dtype: str) -> str:
    """Returns the C type in which a dtype is stored."""
    return DTYPES[dtype][1]


def rounded(dtype: str, code: str) -> str:
    """Returns C code that rounds the result of `code` to a 16-bit dtype; else `code` itself."""
    return f"lo_round_{dtype}({code})" if dtype in _16_BITS else code


def load(dtype: str, place: str) -> str:
    """Returns C code that reads a stored value."""
    return f"lo_of_{dtype}({place})" if dtype in _16_BITS else place


def store(dtype: str, place: str) -> str:
    """Returns a C statement that stores a value, with {} in place of the value."""
    return f"{place} = lo_to_{dtype}({{}});" if dtype in _16_BITS else f"{place} = {{}};"
