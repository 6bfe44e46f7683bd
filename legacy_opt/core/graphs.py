"""Traverses the operations of a graph and copies them; stores objects in graphs."""

import tensorflow as tf

# Operations of TensorFlow 1's `tf.while_loop`.
_LOOPS = {"Enter", "Exit", "LoopCond", "NextIteration", "RefEnter", "RefExit", "RefNextIteration"}


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


def operations_behind(tensors):
    """Returns the operations that compute `tensors`, as a set.

    Of the control inputs, only those are followed by which a constant in a branch of TensorFlow 1's
    `tf.cond` waits for the condition.
    """
    waiting = [tensor.op for tensor in tensors]
    operations = set()
    while waiting:
        operation = waiting.pop()
        if operation not in operations:
            operations.add(operation)
            waiting += _operations_before(operation)
    return operations


def _operations_before(operation):
    branches = [each for each in operation.control_inputs if _is_branch(each)]
    return [tensor.op for tensor in operation.inputs] + branches


def _is_branch(operation):
    """Whether TensorFlow 1's `tf.cond` has made an operation to start one of its branches."""
    if operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation.type == "Switch"


def recomputed(tensor, variable, value):
    """Computes a tensor of a graph again, with a value instead of a variable's value.

    Only the operations that depend on the variable are copied. The others are shared.

    Args:
      tensor: the tensor, of the current graph or of the graph around the current function.
      variable: a variable that `tensor` depends on.
      value: a tensor of the current graph, with the variable's dtype and shape.

    Returns:
      A tensor of the current graph. None if the operations cannot be copied: if a branch or a
      function reads the variable, if a loop of TensorFlow 1 depends on it, or if operations that
      call functions would have to be copied into another function.
    """
    source = source_of(variable)
    behind = operations_behind([tensor])
    replaced = [source.outputs[0]]
    if source.type == "VarHandleOp":
        reads = [each for each in behind if any(item.op is source for item in each.inputs)]
        if any(each.type != "ReadVariableOp" for each in reads):
            return None
        replaced = [each.outputs[0] for each in reads]
    if any(tensor is each for each in replaced):
        return value
    copied = _between(replaced, behind)
    graph = tf.compat.v1.get_default_graph()
    inside = graph is not tensor.graph
    if any(each.type in _LOOPS or (inside and _calls_function(each)) for each in copied):
        return None
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.CopyFrom(tensor.graph.graph_def_versions)
    given = {each.name: value for each in replaced}
    for operation in copied:
        node = graph_def.node.add()
        node.CopyFrom(operation.node_def)
        node.attr.pop("_class", None)  # colocation with an operation that is not copied
        names = {each.name for each in operation.control_inputs if each in copied}
        kept = [name for name in node.input if not name.startswith("^") or name[1:] in names]
        node.input[:] = kept
        for each in operation.inputs:
            if each.op not in copied and each.name not in given:
                given[each.name] = graph.capture(each) if inside else each
    (result,) = tf.import_graph_def(graph_def, given, [tensor.name], name="at_iterations")
    return result


def _calls_function(operation):
    return any(each.HasField("func") for each in operation.node_def.attr.values())


def _between(tensors, operations):
    """Returns those of some operations that depend on one of the tensors."""
    after = {}
    for operation in operations:
        for each in _operations_before(operation):
            after.setdefault(each, []).append(operation)
    starts = {tensor.op for tensor in tensors}
    found, waiting = set(), list(starts)
    while waiting:
        for operation in after.get(waiting.pop(), ()):
            if operation not in found and operation not in starts:
                found.add(operation)
                waiting.append(operation)
    return found
