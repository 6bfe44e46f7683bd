"""Traverses the operations of a graph and copies them; stores objects in graphs."""

import tensorflow as tf

from legacy_opt import versions

# Operations of TensorFlow 1's `tf.while_loop`.
_LOOPS = {"Enter", "Exit", "LoopCond", "NextIteration", "RefEnter", "RefExit", "RefNextIteration"}
# Operations of TensorFlow 1's control flow through which branches and loops reach a variable.
_ENTRANCES = {"Switch", "RefSwitch", "Enter", "RefEnter"}
_ASSIGNMENTS = {"Assign", "AssignVariableOp"}
_INCREMENTS = {"AssignAdd", "AssignAddVariableOp", "AssignSub", "AssignSubVariableOp"}
_INCREMENTS |= {"CountUpTo", "ResourceCountUpTo"}
_SUMS = {"Add", "AddV2", "Sub"}
_READS = {"ReadVariableOp", "Identity"}
_SIMPLE = {"Const", "Cast", *_SUMS, *_READS}


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
    """Returns the operations that compute `tensors`, as a set, also those around a function.

    Of the control inputs, only those are followed by which a constant in a branch of TensorFlow 1's
    `tf.cond` waits for the condition.
    """
    waiting = [tensor.op for tensor in tensors]
    operations, captures = set(), _Captures()
    while waiting:
        operation = waiting.pop()
        if operation not in operations:
            operations.add(operation)
            waiting += _operations_before(operation, captures)
    return operations


class _Captures(dict):
    """A dict from graphs to their `versions.captures`, which take time to find."""

    def __missing__(self, graph):
        self[graph] = versions.captures(graph)
        return self[graph]

    def origin_of(self, tensor):
        """Returns the operation, outside of all functions and branches, that a tensor is from."""
        while True:
            outside = self[tensor.graph].get(tensor.op)
            if outside is None and tensor.op.type not in _ENTRANCES:
                return tensor.op
            tensor = tensor.op.inputs[0] if outside is None else outside


def _operations_before(operation, captures):
    branches = [each for each in operation.control_inputs if _is_branch(each)]
    outside = captures[operation.graph].get(operation)
    tensors = [*operation.inputs] if outside is None else [outside]
    return [tensor.op for tensor in tensors] + branches


def _is_branch(operation):
    """Whether TensorFlow 1's `tf.cond` has made an operation to start one of its branches."""
    if operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation.type == "Switch"


def increments(variable):
    """Returns the operations, also in functions, that add to a variable.

    An assignment counts if its value is a sum with the old value.
    """
    source = source_of(variable)
    found, waiting = [], [source.outputs[0]]
    while waiting:
        tensor = waiting.pop()
        for operation in tensor.consumers():
            position = [each is tensor for each in operation.inputs].index(True)
            if operation.type in _ENTRANCES:
                waiting += operation.outputs
            elif position == 0 and _increments(operation, source):
                found.append(operation)
            for function in versions.functions_called(operation):
                # The first inputs of some operations, such as a condition, are not passed on.
                index = position - (len(operation.inputs) - len(function.inputs))
                waiting += function.inputs[index : index + 1] if index >= 0 else []
    return found


def _increments(operation, source):
    if operation.type not in _ASSIGNMENTS:
        return operation.type in _INCREMENTS
    captures = _Captures()
    waiting, is_sum = [operation.inputs[1].op], False
    while waiting:
        each = waiting.pop()
        if each.type in _SIMPLE:
            is_sum = is_sum or each.type in _SUMS
            if any(captures.origin_of(tensor) is source for tensor in each.inputs):
                return is_sum
            waiting += [tensor.op for tensor in each.inputs]
    return False


def _reads_value(operation):
    return operation.type in _READS and operation.outputs[0].dtype != tf.resource


def follows_updates(operation, names):
    """Whether an operation waits for updates of some variables by an optimizer.

    Assignments do not count as updates.

    Args:
      operation: an operation, such as one that increments a global step after a training step.
      names: the variables' names, a set.
    """
    sources, captures = {name.partition(":")[0] for name in names}, _Captures()
    waiting, seen = [operation], set()
    while waiting:
        each = waiting.pop()
        is_update = each.type not in _READS | _ASSIGNMENTS
        if is_update and any(captures.origin_of(item).name in sources for item in each.inputs):
            return True
        # If an operation and its inputs were made together, TensorFlow lets only the inputs wait.
        inputs = [tensor.op for tensor in each.inputs if tensor.op.type in _SIMPLE]
        waiting += [before for before in [*each.control_inputs, *inputs] if before not in seen]
        seen.update(waiting)
    return False


def constant_value(tensor):
    """Returns the constant value of a tensor of a graph, or None.

    `tf.get_static_value` of the tensor itself would forbid to feed it, as `Variable.load` does.
    """
    behind = operations_behind([tensor])
    if any(each.graph is not tensor.graph or versions.names_of_functions(each) for each in behind):
        return None
    with tf.Graph().as_default():
        return tf.get_static_value(_copied(tensor, behind, {}))


def recomputed(tensor, variable, value_of):
    """Computes a tensor of a graph again, with other values instead of a variable's value.

    Only the operations that depend on the variable are copied. The others are shared.

    Args:
      tensor: the tensor.
      variable: a variable that `tensor` depends on.
      value_of: a function of an operation that reads the variable. It returns a tensor of the same
        graph, with the variable's dtype and shape.

    Returns:
      A tensor of the same graph as `tensor`. None if the operations cannot be copied: if `tensor`
      depends on a function or branch that reads the variable, if a loop of TensorFlow 1 depends on
      the variable, or if operations of several graphs would have to be copied.
    """
    source = source_of(variable)
    behind, captures = operations_behind([tensor]), _Captures()
    reads = [
        each for each in behind if any(captures.origin_of(item) is source for item in each.inputs)
    ]
    if not reads or any(not _reads_value(each) for each in reads):
        return None
    copied = _after(reads, behind)
    if any(each.graph is not tensor.graph or each.type in _LOOPS for each in [*copied, *reads]):
        return None
    with tensor.graph.as_default(), tf.control_dependencies(None):
        given = {each.outputs[0].name: value_of(each) for each in reads}
        if tensor.name in given:
            return given[tensor.name]
        for operation in copied:
            for each in operation.inputs:
                if each.op not in copied:
                    given.setdefault(each.name, each)
        return _copied(tensor, copied, given)


def _copied(tensor, operations, given):
    """Copies operations into the current graph, and returns the copy of a tensor.

    Args:
      tensor: the tensor.
      operations: the operations to copy, a set.
      given: a dict from the names of tensors of other operations to tensors of the current graph.
    """
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.CopyFrom(tensor.graph.graph_def_versions)
    for operation in operations:
        node = graph_def.node.add()
        node.CopyFrom(operation.node_def)
        node.attr.pop("_class", None)  # colocation with an operation that is not copied
        names = {each.name for each in operation.control_inputs if each in operations}
        kept = [name for name in node.input if not name.startswith("^") or name[1:] in names]
        node.input[:] = kept
    (result,) = tf.import_graph_def(graph_def, given, [tensor.name], name="at_iterations")
    return result


def _after(starts, operations):
    """Returns those of some operations that depend on one of `starts`, as a set."""
    after, captures = {}, _Captures()
    for operation in operations:
        for each in _operations_before(operation, captures):
            after.setdefault(each, []).append(operation)
    found, waiting = set(), list(starts)
    while waiting:
        for operation in after.get(waiting.pop(), ()):
            if operation not in found and operation not in starts:
                found.add(operation)
                waiting.append(operation)
    return found
