"""What this TensorFlow is, and in which of its modes operations are made."""

import contextlib
import functools

import tensorflow as tf

EAGER, FUNCTION, GRAPH, CONTROL_FLOW = "eager", "function", "graph", "control flow"


def building():
    """Tells what is being built, which decides how a condition can be expressed.

    Returns:
      EAGER when executing eagerly; FUNCTION inside `tf.function`, `wrap_function` and the branches
      of v2 control flow; CONTROL_FLOW inside a v1 `tf.cond` or `tf.while_loop`; GRAPH in a plain
      TF1 graph.
    """
    if tf.executing_eagerly():
        return EAGER
    graph = tf.compat.v1.get_default_graph()
    if graph.building_function:
        return FUNCTION
    return GRAPH if graph._get_control_flow_context() is None else CONTROL_FLOW


def runs_in_order():
    """Whether what writes and reads variables runs in the order in which the program says it.

    It does when executing eagerly and in `tf.function`, not in TF1 graphs and `wrap_function`.
    """
    graph = tf.compat.v1.get_default_graph()
    return tf.executing_eagerly() or getattr(graph, "_add_control_dependencies", False)


def for_a_session():
    """Whether what is being built belongs to a TF1 graph, in whatever function or branch."""
    with tf.init_scope():
        return not tf.executing_eagerly()


@contextlib.contextmanager
def v1_control_flow():
    """The scope in which `tf.cond` is made of Switch and Merge, which can hold ref variables."""
    with tf.Graph().as_default():  # inside a function it counts as enabled, whatever is set
        v2 = tf.compat.v1.control_flow_v2_enabled()
    if v2:
        tf.compat.v1.disable_control_flow_v2()
    try:
        yield
    finally:
        if v2:
            tf.compat.v1.enable_control_flow_v2()


def tensorflow_version():
    """Returns TensorFlow's version, for people to read."""
    return tf.__version__


def tensorflow_modes():
    """Tells which of TensorFlow 2's behaviours are switched on, as a dict of bools."""
    v1 = tf.compat.v1
    return {
        "eager": tf.executing_eagerly(),
        "control_flow_v2": v1.control_flow_v2_enabled(),
        "resource_variables": v1.resource_variables_enabled(),
    }


def has_estimator():
    """Whether `tf.estimator` is there and can be imported."""
    try:
        return hasattr(tf.estimator, "Estimator")
    except (AttributeError, ImportError):
        return False


def has_contrib():
    """Whether this is a TensorFlow that still has `tf.contrib`, its own."""
    return speaks_v1() and hasattr(tf, "contrib")


def speaks_v1():
    """Whether `tf` itself has TensorFlow 1's names, and needs no `tf.compat.v1` for them."""
    return "Session" in dir(tf)  # to ask for the name itself would be warned of


def plain_module(module):
    """Returns the module in whose own dict names can be put and removed.

    TensorFlow wraps some of its modules, to warn of old names. The wrapper keeps what has been
    read from itself, and some versions never forget it; but not what it finds in what it wraps.
    """
    return getattr(module, "_tfmw_wrapped_module", module)


def compiling_with_xla():
    """Whether the graph that is being built is to be compiled by XLA (`jit_compile=True`)."""
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


@functools.lru_cache(maxsize=None)
def xla_compiles_unique():
    """Whether XLA can find the distinct ids of a sparse gradient, tried once."""
    with tf.init_scope():
        for name in ("jit_compile", "experimental_compile"):  # its name before TensorFlow 2.5
            try:
                compiled = tf.function(lambda ids: tf.unique(ids)[0], **{name: True})
                compiled(tf.constant([1, 1]))
                return True
            except (TypeError, tf.errors.OpError):
                continue
    return False


def is_symbolic(value):
    """Whether `value` is a tensor of a graph, which has no value of its own."""
    return isinstance(value, (tf.Tensor, tf.IndexedSlices)) and hasattr(value, "op")


def regroups_constant_factors():
    """Whether graphs compute ``(x * x) * c`` as ``x * (x * c)`` if c is a constant.

    Then a hyperparameter in a variable gives other bits than the number in a TF1 graph. Measured:
    1.15, 2.0 and 2.2 do, 2.3 and later do not. (All regroup ``(x * y) * c``.)
    """
    return tuple(int(number) for number in tf.__version__.split(".")[:2]) < (2, 3)


def with_lock(operation):
    """Makes the operation that advances a ref global step hold the variable's lock.

    TensorFlow's optimizers make it without, and of the increments of several threads lose some. A
    resource variable adds under its lock anyway.

    Args:
      operation: what `apply_gradients` has returned.

    Returns:
      The same.
    """
    if getattr(operation, "type", None) == "AssignAdd":
        operation._set_attr("use_locking", tf.compat.v1.AttrValue(b=True))
    return operation
