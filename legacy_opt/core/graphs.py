"""Traverses the operations of a graph."""


def operations_behind(tensors):
    """Returns the set of operations that compute `tensors`; does not follow control inputs."""
    found, waiting = set(), [tensor.op for tensor in tensors]
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
    return found
