"""Functions for the graphs of functions: those of `tf.function`, and branches and loops."""

from legacy_opt.versions.modes import is_symbolic


def captures(graph):
    """Returns the tensors of surrounding graphs that the inputs of a function stand for.

    Args:
      graph: a `tf.Graph`. One that does not belong to a function has no such inputs.

    Returns:
      A dict from operations of `graph` to tensors, without inputs that stand for eager tensors.
    """
    pairs = zip(getattr(graph, "internal_captures", ()), getattr(graph, "external_captures", ()))
    return {inside.op: outside for inside, outside in pairs if is_symbolic(outside)}


def names_of_functions(operation):
    """Returns the names of the functions that an operation calls, a list."""
    attributes = operation.node_def.attr.values()
    names = [value.func.name for value in attributes if value.HasField("func")]
    return names + [each.name for value in attributes for each in value.list.func]


def functions_called(operation):
    """Returns the graphs of the functions that an operation calls.

    Functions of an imported graph have no graph of their own. They are left out.
    """
    functions = map(operation.graph._get_function, names_of_functions(operation))
    graphs = [getattr(function, "graph", None) for function in functions]
    return [graph for graph in graphs if graph is not None]
