"""Finds operations that compute a tensor or assign a variable; stores objects in graphs."""

from __future__ import annotations

import functools
import re
from typing import Any, Callable, Dict, Iterable, List, Mapping, Set, TypeVar

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import Operation, Tensor, Variable

Attached = TypeVar("Attached")
_VARIABLES = {"VarHandleOp", "Variable", "VariableV2"}
_ASSIGNS = re.compile("(Resource)?(Assign|CountUpTo|Scatter)")
_FORWARDS = {"Identity", "Switch", "RefSwitch", "Enter", "RefEnter"}  # their output is the variable


def source_of(variable: Variable) -> Operation:
    """Returns the operation of a graph that represents a ref variable or resource variable."""
    return variable.handle.op if hasattr(variable, "handle") else variable.op


def attached(graph: tf.Graph, attribute: str, make: Callable[[], Attached]) -> Attached:
    """Returns an attribute of a graph, and sets it to `make()` on first use.

    The object is freed with the graph; any other reference to its variables would prevent this.
    """
    if not hasattr(graph, attribute):
        setattr(graph, attribute, make())
    return getattr(graph, attribute)


def assignments(variable: Variable) -> Set[str]:
    """Returns the names of the operations in the current graph that may assign a variable.

    A condition, loop or call of a function counts if it contains such an operation.
    """
    graph = tf.compat.v1.get_default_graph()
    waiting = [
        each.handle if hasattr(each, "handle") else each.op.outputs[0]
        for each in getattr(variable, "values", (variable,))  # all replicas
    ]
    if hasattr(graph, "capture"):  # the graph of a function
        waiting = [graph.capture(each) for each in waiting]

    @functools.lru_cache(None)
    def functions() -> Dict[str, Any]:
        return {each.signature.name: each for each in graph.as_graph_def().library.function}

    found = set()
    while waiting:
        tensor = waiting.pop()
        for operation in tensor.consumers():
            if operation.type in _FORWARDS:
                waiting += operation.outputs
            elif _assigns(operation.node_def, {tensor.op.name}, functions):
                found.add(operation.name)
    return found


def _assigns(node: Any, names: Set[str], functions: Callable[[], Dict[str, Any]]) -> bool:
    """Whether a node assigns a variable; `names` are its names in the node's graph or function."""
    given = [each.split(":")[0] for each in node.input if each[0] != "^"]
    if _ASSIGNS.match(node.op):
        return given[0] in names
    called = [each for value in node.attr.values() for each in (value.func, *value.list.func)]
    for name in [each.name for each in called if each.name]:
        body = functions()[name]
        parameters = [each.name for each in body.signature.input_arg]
        # The inputs of the function are the last inputs of the node. A condition comes first.
        pairs = zip(reversed(parameters), reversed(given))
        inside = {parameter for parameter, each in pairs if each in names}
        for each in body.node_def:
            if each.op in _FORWARDS and each.input[0].split(":")[0] in inside:
                inside.add(each.name)
            if _assigns(each, inside, functions):
                return True
    return False


def integer_variables_behind(tensor: Tensor) -> List[Operation]:
    """Returns the operations of the integer scalar variables from which a tensor is computed."""
    return [each for each in operations_behind([tensor]) if _is_integer_scalar(each)]


def _is_integer_scalar(operation: Operation) -> bool:
    if operation.type not in _VARIABLES or not operation.get_attr("dtype").is_integer:
        return False
    return tf.TensorShape(operation.get_attr("shape")).rank == 0


def operations_behind(tensors: Iterable[Tensor]) -> Set[Operation]:
    """Returns the operations that compute `tensors`, inside and outside of functions.

    Control inputs are followed only from a constant in a branch of TensorFlow 1's `tf.cond`.
    """
    waiting = [tensor.op for tensor in tensors]
    operations = set()
    captures = {}  # {graph: the tensors that it captures}
    while waiting:
        operation = waiting.pop()
        if operation not in operations:
            operations.add(operation)
            waiting += _operations_before(operation, captures)
    return operations


def _operations_before(
    operation: Operation, captures: Dict[tf.Graph, Mapping[Operation, Tensor]]
) -> List[Operation]:
    graph = operation.graph
    if graph not in captures:
        captures[graph] = versions.captures(graph)
    branches = [each for each in operation.control_inputs if _is_branch(each)]
    outside = captures[graph].get(operation)
    tensors = [*operation.inputs] if outside is None else [outside]
    return [tensor.op for tensor in tensors] + branches


def _is_branch(operation: Operation) -> bool:
    """Whether TensorFlow 1's `tf.cond` has made an operation to start one of its branches."""
    if operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation.type == "Switch"
