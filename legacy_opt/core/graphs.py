"""Finds what a tensor of a graph is computed from; stores objects in graphs."""

import tensorflow as tf

from legacy_opt import versions

_VARIABLES = {"VarHandleOp", "Variable", "VariableV2"}


def source_of(variable):
    """Returns the operation of a graph that represents a variable of either kind."""
    return variable.handle.op if hasattr(variable, "handle") else variable.op


def attached(graph, attribute, make):
    """Returns an attribute of a graph, and sets it on first use.

    An object that belongs to a graph is stored in it, so that both are freed together. Any other
    reference to the object's variables would keep the graph in memory.

    Args:
      graph: a `tf.Graph`.
      attribute: the name of the attribute.
      make: a function that makes the value.
    """
    if not hasattr(graph, attribute):
        setattr(graph, attribute, make())
    return getattr(graph, attribute)


def integer_variables_behind(tensor):
    """Returns the operations of the integer scalar variables from which a tensor is computed."""
    return [each for each in operations_behind([tensor]) if _is_integer_scalar(each)]


def _is_integer_scalar(operation):
    if operation.type not in _VARIABLES or not operation.get_attr("dtype").is_integer:
        return False
    return tf.TensorShape(operation.get_attr("shape")).rank == 0


def operations_behind(tensors):
    """Returns the operations that compute `tensors`, as a set, also those around a function.

    Of the control inputs, only those are followed by which a constant in a branch of TensorFlow 1's
    `tf.cond` waits for the condition.
    """
    waiting = [tensor.op for tensor in tensors]
    operations, captures = set(), {}  # `captures` is a dict from graphs to their captures
    while waiting:
        operation = waiting.pop()
        if operation not in operations:
            operations.add(operation)
            waiting += _operations_before(operation, captures)
    return operations


def _operations_before(operation, captures):
    graph = operation.graph
    if graph not in captures:
        captures[graph] = versions.captures(graph)
    branches = [each for each in operation.control_inputs if _is_branch(each)]
    outside = captures[graph].get(operation)
    tensors = [*operation.inputs] if outside is None else [outside]
    return [tensor.op for tensor in tensors] + branches


def _is_branch(operation):
    """Whether TensorFlow 1's `tf.cond` has made an operation to start one of its branches."""
    if operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation.type == "Switch"
