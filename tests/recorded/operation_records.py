"""Makes a record for each operation, so that each target can compute it, with NumPy alone."""

import itertools

import numpy as np
import pytest

from legacy_opt.programs.operations import FLOATS, INTEGERS, OPERATIONS, SUMS
from legacy_opt.programs.program import ELEMENT, SCALAR, TENSOR, Function, Node, Program
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.records import Group, Record

_EDGES = [-20.0, -2.5, -1.0, -1e-9, -0.0, 0.0, 1e-9, 0.3, 1.0, 2.0, 40.5, np.inf, -np.inf, np.nan]
_BOTH = np.array(np.meshgrid(_EDGES, _EDGES)).reshape(2, -1)
_INTEGERS = np.meshgrid([-9.0, -7.0, -1.0, 0.0, 1.0, 7.0, 1e6], [3.0])
DIVISORS = -3, 7  # integers are divided by constants only


def _records():
    """Yields the name of each operation, and a record whose update sets a variable to its result.

    The first operand is the gradient, the second the variable; a third is a constant.
    """
    for dtype, name in itertools.product(FLOATS, OPERATIONS):
        if OPERATIONS[name].dtypes == INTEGERS:
            for integer in INTEGERS:
                for divisor in DIVISORS:
                    yield name, _record(_of_integers(name, dtype, integer, divisor), dtype)
        else:
            yield name, _record(_nodes(name, dtype), dtype)


def operands(name, dtype):
    """Returns a gradient and a variable, in which all pairs of numbers with corners occur."""
    if OPERATIONS[name].dtypes == INTEGERS or name == "Cast":
        return [each.reshape(-1).astype(dtype) for each in _INTEGERS]
    if name in SUMS:
        return np.linspace(-1, 3, 20000).astype(dtype), np.zeros(20000, dtype)
    gradient, value = [each.astype(dtype) for each in _BOTH]
    if name == "ClipByValue":  # limits in the wrong order have no meaning
        value = np.fmin(value, 1).astype(dtype)
    return gradient, value


def in_numpy(name, record, optimizer_class=NumpyOptimizer):
    """Returns the result of an operation."""
    gradient, value = operands(name, record.dtype)
    with np.errstate(all="ignore"):
        optimizer_class(record, {"w": value}).step({"w": gradient})
    return value


def same(found, expected):
    """Returns whether arrays have the same bits; a NaN may have any."""
    return (
        found.dtype == expected.dtype
        and np.array_equal(
            np.where(np.isnan(found), 0, found).tobytes(),
            np.where(np.isnan(expected), 0, expected).tobytes(),
        )
        and np.array_equal(np.isnan(found), np.isnan(expected))
    )


def _record(nodes, dtype):
    program = Program(False, tuple(nodes), len(nodes) - 1, {})
    group = Group(None, (1, None), {}, program, "rows are not tried")
    nothing = Function((), {})
    return Record("Operation", dtype, None, {}, {}, nothing, nothing, (group,))


def _inputs(dtype):
    return [Node("Input", dtype, ELEMENT, (), (TENSOR, name)) for name in ("gradient", "value")]


def _nodes(name, dtype):
    row, nodes = OPERATIONS[name], _inputs(dtype)
    zero = len(nodes)
    nodes += [Node("Const", dtype, SCALAR, (), 0.0), Node("Const", dtype, SCALAR, (), 1.0)]
    count, own = 3 if row.operands is None else row.operands, [0, 1, zero + 1]
    if row.dtypes == ("bool",) or name == "Select":
        nodes += [Node("Greater", "bool", ELEMENT, (i, zero)) for i in (0, 1)]
        own = [zero + 2, zero + 3] if name != "Select" else [zero + 2, 0, 1]
    if name == "Cast":
        nodes.append(Node("Cast", "int32", ELEMENT, (0,)))
        own = [len(nodes) - 1]
    level = SCALAR if name in SUMS else ELEMENT
    result = dtype if name in ("Cast", "Select") or row.dtypes != ("bool",) else "bool"
    result = "bool" if row.result == "bool" else result
    nodes.append(Node(name, result, level, tuple(own[:count])))
    if result == "bool":
        nodes.append(Node("Cast", dtype, ELEMENT, (len(nodes) - 1,)))
    return nodes


def _of_integers(name, dtype, integer, divisor):
    nodes = _inputs(dtype)
    nodes.append(Node("Cast", integer, ELEMENT, (0,)))
    nodes.append(Node("Const", integer, SCALAR, (), divisor))
    nodes.append(Node(name, integer, ELEMENT, (2, 3)))
    return [*nodes, Node("Cast", dtype, ELEMENT, (4,))]


EVERY = pytest.mark.parametrize(
    "name, record",
    [
        pytest.param(name, record, id=f"{name}-{record.dtype}-{i}")
        for i, (name, record) in enumerate(_records())
    ],
)
