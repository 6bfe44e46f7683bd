"""Traverses the operations of a graph."""


def operations_behind(tensors):
    """Returns the operations that compute `tensors`, as a set. Control inputs are not followed."""
    found, waiting = set(), [tensor.op for tensor in tensors]
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
    return found
