"""The C code of dtypes, numbers and elementwise operations, for the nodes of a program."""

from __future__ import annotations

import functools
import math
from typing import Any, Sequence

from legacy_opt.programs.operations import FLOATS, HALF, OPERATIONS
from legacy_opt.programs.program import Nodes, UnsupportedError

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


def expression(nodes: Nodes, i: int) -> str:
    """Returns the C expression of an elementwise operation."""
    node = nodes[i]
    name, dtype = node.operation, node.dtype
    operands = [text_of(nodes, k) for k in node.inputs]
    if name == "Cast":
        return _cast(nodes[node.inputs[0]].dtype, dtype, operands[0])
    row = OPERATIONS[name]
    if row.integer_code is not None and not _is_float(dtype):
        return _integer_division(nodes, i, operands)
    lacks_dtype = row.dtypes == FLOATS and not _is_float(dtype)
    # TensorFlow does not round such a sum after each addition, as the C code would.
    is_half_sum = name == "AddN" and dtype in HALF
    if row.code is None or is_half_sum or lacks_dtype:
        raise UnsupportedError(f"kernels do not support the operation {name} in {dtype}")
    if callable(row.code):
        code = row.code(*operands, rounded=functools.partial(rounded, dtype), f=_suffix(dtype))
    else:
        code = row.code.format(*operands, f=_suffix(dtype), type=type_of(dtype))
    return rounded(dtype, code) if row.rounds else code


def _cast(source: str, dtype: str, code: str) -> str:
    if dtype == source:
        return code
    if dtype == "bool":
        return f"{code} != 0"
    if _is_float(source) and not _is_float(dtype):
        return f"lo_{dtype}_of_{type_of(source)}({code})"
    return rounded(dtype, f"({type_of(dtype)}){code}")


def _integer_division(nodes: Nodes, i: int, operands: Sequence[str]) -> str:
    node = nodes[i]
    divisor = nodes[node.inputs[1]]
    # TensorFlow raises an error when it divides an integer by zero. A kernel cannot.
    value = divisor.detail if divisor.operation == "Const" else 0  # it may be 0
    if value == 0:
        raise UnsupportedError(
            f"kernels divide integers only by constants other than 0 ({node.operation} in "
            f"{node.dtype})"
        )
    division, division_by_minus_1 = OPERATIONS[node.operation].integer_code
    code = division_by_minus_1 if value == -1 else division
    return code.format(*operands)


def sum_of_integers(nodes: Nodes, i: int, total: str) -> str:
    """Returns the C expression of a sum of integers; `total` is the C expression in float64.

    Raises an UnsupportedError if float64 may not be exact, or the result is not a sum.
    """
    node = nodes[i]
    operand = nodes[node.inputs[0]]
    # float64 adds int32 numbers exactly, also if they are cast to int64.
    if operand.dtype == "int64" and operand.operation == "Cast":
        operand = nodes[operand.inputs[0]]
    if node.operation != "Sum" or operand.dtype not in ("bool", "int32"):
        raise UnsupportedError(
            f"kernels do not support {node.operation} in {node.dtype}, unless it adds int32 or bool"
        )
    return f"({type_of(node.dtype)})lo_int64_of_double({total})"


def _is_float(dtype: str) -> bool:
    return dtype in (*FLOATS, *HALF)


def name_of(i: int) -> str:
    """Returns the C variable of a node."""
    return f"n{i}"


def text_of(nodes: Nodes, i: int) -> str:
    """Returns the C expression that reads a node: a variable, or the number of a constant."""
    node = nodes[i]
    return _literal(node.detail, node.dtype) if node.operation == "Const" else name_of(i)


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


def type_of(dtype: str) -> str:
    """Returns the C type in which values of a dtype are computed."""
    return DTYPES[dtype][2]


def stored_type(dtype: str) -> str:
    """Returns the C type in which a dtype is stored."""
    return DTYPES[dtype][1]


def rounded(dtype: str, code: str) -> str:
    """Returns C code that rounds `code` to a 16-bit dtype; `code` itself for other dtypes."""
    return f"lo_round_{dtype}({code})" if dtype in HALF else code


def load(dtype: str, place: str) -> str:
    """Returns C code that reads a stored value."""
    return f"lo_of_{dtype}({place})" if dtype in HALF else place


def store(dtype: str, place: str) -> str:
    """Returns a C statement that stores a value, with {} in place of the value."""
    return f"{place} = lo_to_{dtype}({{}});" if dtype in HALF else f"{place} = {{}};"
