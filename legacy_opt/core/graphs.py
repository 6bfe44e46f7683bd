"""Walks through the operations of a graph."""


def operations_behind(tensors):
    """Returns the operations that tensors are computed from, a set."""
    found, waiting = set(), [tensor.op for tensor in tensors]
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
    return found
