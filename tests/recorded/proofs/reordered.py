"""Records with the same formulas, in which operations have another order: sound implementations."""

from legacy_opt.recorded.formulas import Graph
from legacy_opt.recorded.records import Change, Function, Program

ASSOCIATIVE = "Mul", "Add"


def reordered(record, random):
    """Returns a record; each operation has another order with a probability of 9/10."""

    def other(part):
        return (
            rewritten(part, record.dtype, random) if isinstance(part, (Program, Function)) else part
        )

    groups = tuple(
        each._replace(dense=other(each.dense), sparse=other(each.sparse), first=other(each.first))
        for each in record.groups
    )
    return record._replace(before=other(record.before), after=other(record.after), groups=groups)


def rewritten(part, dtype, random):
    graph, values = Graph(dtype), []
    for node in part.nodes:
        operands = [values[each] for each in node.inputs]
        value = None
        if node.dtype == dtype and random.random() < 0.9:
            value = in_another_order(graph, part.nodes, node, values, random)
        values.append(graph.again(node, operands) if value is None else value)
    nodes = tuple(graph.nodes)
    if isinstance(part, Function):
        return Function(nodes, {name: values[i].position for name, i in part.results.items()})
    changes = {
        name: Change(how, values[i].position, None if factor is None else values[factor].position)
        for name, (how, i, factor) in part.changes.items()
    }
    return Program(part.by_rows, nodes, values[part.value].position, changes)


def in_another_order(graph, nodes, node, values, random):
    """Returns the value of a node in another order of operations, or None."""

    def do(name, *operands):
        return graph.operation(name, operands)

    operands = [values[each] for each in node.inputs]
    if node.operation in ASSOCIATIVE:
        for inner, rest in (node.inputs, node.inputs[::-1]):
            if nodes[inner].operation == node.operation:  # (x * y) * rest is x * (y * rest)
                x, y = (values[each] for each in nodes[inner].inputs)
                return do(node.operation, x, do(node.operation, y, values[rest]))
        return do(node.operation, *reversed(operands))
    if node.operation == "RealDiv":
        return do("Mul", operands[0], do("Reciprocal", operands[1]))
    if node.operation == "Sqrt" and random.random() < 0.5:
        return do("Reciprocal", do("Rsqrt", *operands))
    if node.operation in ("Sqrt", "Rsqrt"):
        return do("Pow", *operands, 0.5 if node.operation == "Sqrt" else -0.5)
    return None
