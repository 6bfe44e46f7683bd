"""Rules as Python functions of symbolic values, without TensorFlow: `recorded.rule`.

A symbolic value has Python's operators. The functions here are named as in NumPy or TensorFlow, and
take symbolic values and numbers.
"""

from __future__ import annotations

import numbers
from typing import Any, Callable, Dict, Mapping, NoReturn, Optional, Sequence, Tuple, Union

import numpy as np

from legacy_opt.programs import program as programs
from legacy_opt.programs.operations import DTYPES, OPERATIONS, SUMS
from legacy_opt.programs.program import Change, Function, Input, Node, Program
from legacy_opt.recorded.reading import loads
from legacy_opt.recorded.reading.checks import Reader, shown
from legacy_opt.recorded.records import Group, Record, RecordError, Scalar, Slot, slot_inputs
from legacy_opt.recorded.writing import dumps

__all__ = ["Slot", "cast", "div_no_nan", "exp", "expm1", "log", "log1p", "maximum", "minimum"]
__all__ += ["norm", "reduce_mean", "reduce_sum", "rsqrt", "sign", "sqrt", "square", "tanh", "where"]
_STEP = "global_step"


def _operation(name: str) -> Callable[..., Any]:
    def computed(*operands: Any) -> Value:
        graph = next((each.graph for each in operands if isinstance(each, Value)), None)
        if graph is None:
            raise RecordError(f"{name} of {shown(operands)}: compute numbers with `math`")
        return graph.operation(name, operands)

    return computed


def _both(name: str) -> Tuple[Callable[..., Any], Callable[..., Any]]:
    return _operation(name), lambda right, left: _operation(name)(left, right)


class Value:
    """A symbolic value: a node of a rule."""

    __array_ufunc__ = None  # so that NumPy's scalars leave operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Graph, position: int) -> None:
        self.graph = graph
        self.position = position
        self.node: Node = graph.nodes[position]

    def __bool__(self) -> NoReturn:
        raise RecordError(
            "`if`, `and`, `or`, `not` and `max` cannot read a value that differs from step to "
            "step: write where(condition, x, y), &, |, ~ or maximum(x, y)"
        )

    __add__, __radd__ = _both("Add")
    __sub__, __rsub__ = _both("Sub")
    __mul__, __rmul__ = _both("Mul")
    __truediv__, __rtruediv__ = _both("RealDiv")
    __floordiv__, __mod__ = _operation("FloorDiv"), _operation("FloorMod")
    __pow__, __rpow__ = _both("Pow")
    __and__, __or__, __invert__ = map(_operation, ("LogicalAnd", "LogicalOr", "LogicalNot"))
    __neg__, __abs__ = _operation("Neg"), _operation("Abs")
    __eq__, __ne__ = _operation("Equal"), _operation("NotEqual")
    __lt__, __le__ = _operation("Less"), _operation("LessEqual")
    __gt__, __ge__ = _operation("Greater"), _operation("GreaterEqual")


sqrt, rsqrt, square, sign = map(_operation, ("Sqrt", "Rsqrt", "Square", "Sign"))
exp, expm1, log, log1p, tanh = map(_operation, ("Exp", "Expm1", "Log", "Log1p", "Tanh"))
maximum, minimum, where, div_no_nan = map(_operation, ("Maximum", "Minimum", "Select", "DivNoNan"))


def cast(value: Value, dtype: Optional[str] = None) -> Value:
    """Casts a value; by default, to the dtype of the variables."""
    return value.graph.operation("Cast", [value], dtype=dtype or value.graph.dtype)


def reduce_sum(value: Value, level: str = programs.SCALAR) -> Value:
    """Returns the sum over all elements, or for each "matrix_row" or "matrix_column"."""
    return value.graph.operation("Sum", [value], level)


def reduce_mean(value: Value, level: str = programs.SCALAR) -> Value:
    """Returns the mean; see `reduce_sum`."""
    return value.graph.operation("Mean", [value], level)


def norm(value: Value) -> Value:
    """Returns the Euclidean norm of all elements."""
    return sqrt(reduce_sum(square(value)))


class Names:
    """Symbolic values by name, as attributes or items: `hyper.beta` or `hyper["beta"]`."""

    _what: str
    graph: Graph
    _inputs: Mapping[str, Input]

    def __init__(self, what: str, graph: Graph, inputs: Mapping[str, Input]) -> None:
        vars(self).update(_what=what, graph=graph, _inputs=inputs)

    def __getitem__(self, name: str) -> Value:
        if name not in self._inputs:
            raise RecordError(f"there is no {self._what} {name!r}, but {sorted(self._inputs)}")
        return self.graph.input(self._inputs[name])

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise RecordError(f"a rule returns the new {name!r}, and cannot set it")

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__"):  # a special method, for which Python asks
            raise AttributeError(name)
        return self[name]


class Graph:
    """Collects the nodes of a rule; equal nodes are one."""

    def __init__(self, dtype: str, nodes: Sequence[Node] = ()) -> None:
        self.dtype = dtype
        self.nodes = [*nodes]
        # With texts of numbers: NaN does not equal NaN, and 0 equals -0.
        self._places = {(*node[:4], repr(node.detail)): i for i, node in enumerate(nodes)}

    def add(self, *parts: Any) -> Value:
        return self.kept(Reader().operation(Node(*parts), self.nodes) if parts[3] else Node(*parts))

    def kept(self, node: Node) -> Value:
        """Returns the value of a node that is valid."""
        key = (*node[:4], repr(node.detail))
        place = self._places.setdefault(key, len(self.nodes))
        if place == len(self.nodes):
            self.nodes.append(node)
        return Value(self, place)

    def input(self, each: Input) -> Value:
        return self.add("Input", each.dtype, each.level, (), each.key)

    def value(self, found: Any, dtype: Optional[str] = None) -> Value:
        """Returns a symbolic value; a number becomes a constant."""
        if not isinstance(found, Value):
            dtype = dtype or self.dtype
            return self.add("Const", dtype, programs.SCALAR, (), _number(found, dtype))
        if found.graph is not self:
            raise RecordError("a function of a rule can only read values that it gets")
        return found

    def operation(self, name: str, given: Any, level: Any = None, dtype: Any = None) -> Value:
        alike = given[1:] if name == "Select" else given
        dtypes = [each.node.dtype for each in alike if isinstance(each, Value)]
        operands = [self.value(each, dtypes[0] if dtypes else None) for each in given]
        found = [each.node.dtype for each in operands]
        dtype = dtype or OPERATIONS[name].dtype_of_result(found)
        if dtype not in DTYPES:
            raise RecordError(f"{name} has no operands of {', '.join(found)}: use `cast`")
        level = level or programs.joined_level([each.node.level for each in operands])
        return self.add(name, dtype, level, tuple(each.position for each in operands))

    def again(self, node: Node, operands: Sequence[Value]) -> Value:
        """Computes the operation of a node with other operands."""
        if not node.inputs:
            return self.add(*node)
        level = node.level if node.operation in SUMS else None
        dtype = node.dtype if node.operation == "Cast" else None
        return self.operation(node.operation, operands, level, dtype)

    def function(self, results: Mapping[str, Value]) -> Function:
        places = {name: each.position for name, each in results.items()}
        return Function(tuple(self.nodes), places)


def _number(found: Any, dtype: str) -> Any:
    """Returns a number as it is in a dtype."""
    kinds = {"f": numbers.Real, "i": numbers.Integral, "b": bool}
    if not isinstance(found, kinds[dtype[0]]) or isinstance(found, bool) != (dtype == "bool"):
        raise RecordError(f"expected a symbolic value or a number of {dtype}, got {shown(found)}")
    return np.array(found).astype(dtype).item()


def rule(
    function: Callable[..., Any],
    slots: Mapping[str, Union[float, str, Slot]],
    hyperparameters: Mapping[str, float],
    sparse: Union[Callable[..., Any], str, None] = None,
    by_rows: bool = False,
    shared: Mapping[str, Union[float, str]] = {},
    before: Optional[Callable[[Names], Mapping[str, Any]]] = None,
    after: Optional[Callable[[Names], Mapping[str, Any]]] = None,
    name: Optional[str] = None,
    dtype: str = "float32",
) -> Record:
    """Writes the rule of an optimizer, without TensorFlow; see `legacy_opt.recorded.formulas`.

    Example::

        from legacy_opt import recorded

        def momentum(grad, value, slots, hyper):
            mean = hyper.momentum * slots.mean + grad
            return value - hyper.learning_rate * mean, {"mean": mean}

        record = recorded.rule(momentum, {"mean": 0.0}, {"learning_rate": 0.1, "momentum": 0.9})

    Args:
      function: a function of the gradient, the variable, the slots and the hyperparameters, which
        returns the new value of the variable and a dict of new slots. Among the hyperparameters are
        `global_step` (the number of completed steps, int64), `shared` and results of `before`.
      slots: a dict from names to initial values: numbers, names of hyperparameters, or
        `records.Slot`.
      hyperparameters: a dict from names to values.
      sparse: a function for sparse gradients if it is another one, or a text that says why there is
        no update.
      by_rows: whether a sparse gradient updates only its rows; else it is made dense.
      shared: initial values of variables that all variables share, such as powers of beta.
      before: a function of the hyperparameters that returns a dict of scalars, once per step.
      after: a function of the hyperparameters that returns new values of `shared`.
      name: the name of the optimizer; by default, that of the function.
      dtype: the dtype of the variables, "float32" or "float64".

    Raises:
      RecordError: the rule cannot be written. The message says why.
    """
    scalars = {each: Scalar(dtype, _number(x, dtype)) for each, x in hyperparameters.items()}
    initial = {each: x for each, x in {**slots, **shared}.items() if isinstance(x, str)}
    for each in set(initial.values()).difference(scalars):
        raise RecordError(f"a slot starts at {each!r}, which is no hyperparameter")

    def start(x: Any) -> Any:
        return scalars[x].value if isinstance(x, str) else _number(x, dtype)

    layouts = {
        each: x if isinstance(x, Slot) else Slot(programs.ELEMENT, dtype, start(x), each)
        for each, x in slots.items()
    }
    variables = {each: Scalar(dtype, start(x)) for each, x in shared.items()}
    given = {each: Input(each, programs.SCALAR, dtype) for each in (*scalars, *variables)}
    given[_STEP] = Input(_STEP, programs.SCALAR, "int64")
    first, made = _computed(before, given, dtype)
    last, new = _computed(after, given, dtype)
    inputs = {name: Input(name, programs.SCALAR, each.node.dtype) for name, each in made.items()}
    dense, of_rows = (
        each if isinstance(each, str) else _program(each, layouts, {**given, **inputs}, dtype, rows)
        for each, rows in ((function, False), (sparse or function, by_rows))
    )
    group = Group(None, (0, None), layouts, dense, of_rows)
    read = programs.numbers_of(*group.programs)
    made.update({name: first[name] for name in sorted(read.difference(made))})
    functions = first.graph.function(made), last.graph.function(new)
    used = programs.numbers_of(*functions)
    for each in set(scalars).difference(used, initial.values()):
        raise RecordError(f"the rule does not read the hyperparameter {each!r}")
    step = "int64" if _STEP in used else None
    parts = name or getattr(function, "__name__", "rule"), dtype, step, scalars, variables
    return loads(dumps(Record(*parts, *functions, (group,), initial=initial)))  # checks all parts


def _computed(
    function: Any, inputs: Mapping[str, Input], dtype: str
) -> Tuple[Names, Dict[str, Value]]:
    """Returns the symbolic values that `before` or `after` reads, and those that it computes."""
    names = Names("hyperparameter", Graph(dtype), inputs)
    found = function(names) if function else {}
    return names, {name: names.graph.value(each) for name, each in found.items()}


def _program(
    function: Callable[..., Any],
    layouts: Mapping[str, Slot],
    scalars: Mapping[str, Input],
    dtype: str,
    by_rows: bool,
) -> Program:
    graph = Graph(dtype)
    names = programs.GRADIENT, programs.VALUE
    tensors = [graph.input(Input(each, programs.ELEMENT, dtype)) for each in names]
    inputs = {each.name: each for each in slot_inputs(layouts, by_rows)}
    slots = Names("slot", graph, inputs)
    found = function(*tensors, slots, Names("hyperparameter", graph, scalars))
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], dict):
        raise RecordError(f"a rule returns the new value and a dict of new slots: {shown(found)}")

    def checked(what: str, new: Any, old: Value) -> int:
        value = graph.value(new, old.node.dtype)
        got, expected = value.node[1:3], old.node[1:3]
        if got[0] != expected[0] or programs.joined_level([got[1], expected[1]]) != expected[1]:
            raise RecordError(f"the new {what} must be {expected} (dtype, level), got {got}")
        return value.position

    changes = {
        each: Change(programs.ASSIGN, checked(each, new, slots[each]))
        for each, new in found[1].items()
    }
    value = checked("value", found[0], tensors[1])
    return Program(by_rows, tuple(graph.nodes), value, changes).pruned()
