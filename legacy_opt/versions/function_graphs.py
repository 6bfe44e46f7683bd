"""Functions for the graphs of functions: those of `tf.function`, and branches and loops."""

from legacy_opt.versions.modes import is_symbolic


def captured(tensor):
    """Returns the tensor of the surrounding graph that an input of a function stands for.

    None if `tensor` is not such an input, or stands for an eager tensor.
    """
    graph = tensor.graph
    for inside, outside in zip(
        getattr(graph, "internal_captures", ()), getattr(graph, "external_captures", ())
    ):
        if inside is tensor:
            return outside if is_symbolic(outside) else None
    return None


def functions_called(operation):
    """Returns the graphs of the functions that an operation calls.

    Functions of an imported graph have no graph of their own. They are left out.
    """
    attributes = operation.node_def.attr.values()
    names = [value.func.name for value in attributes if value.HasField("func")]
    names += [each.name for value in attributes for each in value.list.func]
    functions = [operation.graph._get_function(name) for name in names]
    graphs = [getattr(function, "graph", None) for function in functions]
    return [graph for graph in graphs if graph is not None]
