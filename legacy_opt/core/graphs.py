"""Traverses the operations of a graph."""


def operations_behind(tensors):
    """Returns the operations that compute `tensors`, as a set. Control inputs are not followed."""
    waiting = [tensor.op for tensor in tensors]
    operations = set()
    while waiting:
        operation = waiting.pop()
        if operation not in operations:
            operations.add(operation)
            waiting += [tensor.op for tensor in operation.inputs]
    return operations
