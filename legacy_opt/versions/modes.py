"""TensorFlow's version, features and execution modes."""

from __future__ import annotations

import contextlib
import copy
import functools
import glob
import mmap
import os
import sys
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import tensorflow as tf

EAGER, FUNCTION, GRAPH, CONTROL_FLOW = "eager", "function", "graph", "control flow"


def building() -> str:
    """Returns the mode in which operations are created.

    FUNCTION also means `wrap_function` and the branches of v2 control flow; CONTROL_FLOW is inside
    a v1 `tf.cond` or `tf.while_loop`; GRAPH is a plain TF1 graph.
    """
    if tf.executing_eagerly():
        return EAGER
    graph = tf.compat.v1.get_default_graph()
    if graph.building_function:
        return FUNCTION
    return GRAPH if graph._get_control_flow_context() is None else CONTROL_FLOW


def runs_in_order() -> bool:
    """Whether reads and writes of variables run in program order.

    They do in eager execution and in `tf.function`, but not in TF1 graphs or in `wrap_function`.
    """
    graph = tf.compat.v1.get_default_graph()
    return tf.executing_eagerly() or getattr(graph, "_add_control_dependencies", False)


def for_a_session() -> bool:
    """Whether the outermost context is a TF1 graph, also inside its functions and branches."""
    with tf.init_scope():
        return not tf.executing_eagerly()


@contextlib.contextmanager
def v1_control_flow() -> Iterator[None]:
    """Makes `tf.cond` build Switch and Merge operations, which work with ref variables."""
    # In a new graph, because control_flow_v2_enabled() is always True in functions.
    with tf.Graph().as_default():
        is_v2 = tf.compat.v1.control_flow_v2_enabled()
    if is_v2:
        tf.compat.v1.disable_control_flow_v2()
    try:
        yield
    finally:
        if is_v2:
            tf.compat.v1.enable_control_flow_v2()


def tensorflow_version() -> str:
    """Returns TensorFlow's version, for messages."""
    return tf.__version__


def tensorflow_build() -> Tuple[str, str, str]:
    """Returns TensorFlow's version, source revision and C++ ABI, which identify a build."""
    return tf.__version__, tf.version.GIT_VERSION, str(tf.sysconfig.CXX11_ABI_FLAG)


def cpp_standard(folder: Optional[str] = None) -> str:
    """Returns the C++ standard that TensorFlow was compiled with, as a compiler flag.

    `folder` may have the libraries of another TensorFlow, which need not run on this machine.
    """
    # With C++17, absl::string_view is std::string_view, so the mangled names of TensorFlow's
    # functions contain std::basic_string_view.
    folder = folder or tf.sysconfig.get_lib()
    paths = glob.glob(os.path.join(folder, "libtensorflow_framework.*"))
    with open(paths[0], "rb") as file, mmap.mmap(
        file.fileno(), 0, access=mmap.ACCESS_READ
    ) as library:
        has_cpp17 = library.find(b"St17basic_string_view") >= 0
    return "-std=c++17" if has_cpp17 else "-std=c++14"


def tensorflow_modes() -> Dict[str, bool]:
    """Returns which behaviours of TensorFlow 2 are enabled, as a dict from name to bool."""
    v1 = tf.compat.v1
    return {
        "eager": tf.executing_eagerly(),
        "control_flow_v2": v1.control_flow_v2_enabled(),
        "resource_variables": v1.resource_variables_enabled(),
    }


@contextlib.contextmanager
def make_some_wait(
    awaited: tf.Operation, is_chosen: Callable[[tf.Operation], bool]
) -> Iterator[None]:
    """Scope whose operations run after `awaited` if `is_chosen(operation)` is true.

    As with `tf.control_dependencies`, operations of other threads, of an `init_scope`, and inside
    functions and branches do not wait. Operations that call functions and branches do.
    """
    # A scope without dependencies records the operations that are created inside the scope.
    scope = tf.compat.v1.get_default_graph().control_dependencies([])
    with scope:
        yield
    context = awaited._get_control_flow_context()
    for operation in scope._seen_nodes:
        # A v1 condition reads variables through operations of the outer context. These wait.
        if operation._get_control_flow_context() is context and is_chosen(operation):
            operation._add_control_input(awaited)


def has_contrib() -> bool:
    """Whether `tf.contrib` exists and is TensorFlow's own, not added by `patch_tensorflow`."""
    return speaks_v1() and hasattr(tf, "contrib")


def speaks_v1() -> bool:
    """Whether `tf`, and not only `tf.compat.v1`, has TensorFlow 1's names, such as `Session`."""
    return "Session" in dir(tf)  # hasattr would log a deprecation warning


def modules_v1() -> List[types.ModuleType]:
    """Returns all copies of the module `tf.compat.v1` that a program may have imported.

    `import tensorflow.compat.v1` creates a copy, and so does Keras 2, by `tensorflow.compat.v2`.
    """
    # A list, because another thread may import modules meanwhile.
    names = [name for name in list(sys.modules) if name.startswith("tensorflow")]
    copies = [sys.modules[name] for name in names if name.endswith(".compat.v1")]
    # tf.compat.v1 is first: a patch registers the first module as tensorflow.compat.v1, and another
    # copy, such as tf.compat.v1.compat.v1, would lack submodules.
    return list({id(plain_module(each)): each for each in [tf.compat.v1, *copies]}.values())


def plain_module(module: types.ModuleType) -> types.ModuleType:
    """Returns the module inside TensorFlow's deprecation wrapper. Returns other modules unchanged.

    Set and delete attributes of the returned module: some wrappers return deleted attributes.
    """
    if type(module) is types.ModuleType:  # `getattr` of a moved module would print a warning
        return module
    return getattr(module, "_tfmw_wrapped_module", module)


def compiling_with_xla() -> bool:
    """Whether XLA will compile the graph that is being built (`jit_compile=True`)."""
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
def xla_compiles_unique() -> bool:
    """Whether XLA can compile `tf.unique`, which updates with sparse gradients use."""
    for name in ("jit_compile", "experimental_compile"):  # the second name: TensorFlow < 2.5
        with contextlib.suppress(TypeError, tf.errors.OpError):
            compiled = tf.function(lambda ids: tf.unique(ids)[0], **{name: True})
            _run_once(compiled, [1, 1])
            return True
    return False


def _run_once(function: Callable[[tf.Tensor], tf.Tensor], numbers: List[int]):
    """Calls a function of a tensor; if the program does not run eagerly, in a new graph."""
    with tf.init_scope():
        if tf.executing_eagerly():
            function(tf.constant(numbers))
            return
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ids = tf.compat.v1.placeholder(tf.int32, [len(numbers)])  # a constant would be folded
        session.run(function(ids), {ids: numbers})


def is_symbolic(value: Any) -> bool:
    """Whether `value` is a symbolic tensor of a graph, not an eager tensor."""
    return isinstance(value, (tf.Tensor, tf.IndexedSlices)) and hasattr(value, "op")


def captures(graph: tf.Graph) -> Dict[tf.Operation, tf.Tensor]:
    """Returns {an input operation of a function's graph: the symbolic tensor that it captures}."""
    pairs = zip(getattr(graph, "internal_captures", ()), getattr(graph, "external_captures", ()))
    return {inside.op: outside for inside, outside in pairs if is_symbolic(outside)}


def regroups_constant_factors() -> bool:
    """Whether graphs compute ``(x * x) * c`` as ``x * (x * c)`` if c is a constant.

    If so, the last bits of a result depend on whether a hyperparameter is a variable or a constant
    in a TF1 graph. Tests have shown that TensorFlow 1.15, 2.0 and 2.2 do this, and 2.3 and later do
    not. If x and y are different tensors, all versions regroup ``(x * y) * c``.
    """
    return tuple(int(number) for number in tf.__version__.split(".")[:2]) < (2, 3)


def remapping_crashes() -> bool:
    """Whether Grappler's remapping ends the process for layer normalization written by hand.

    It does in TensorFlow 2.15.1 and 2.16.2 on x86-64 (`legacy-opt docs old_scripts`), but not in
    2.14.1 and 2.17.1. The version decides, because a test would end the process.
    """
    return tf.__version__.startswith(("2.15.", "2.16."))


def turn_remapping_off(say: Callable[[], None]):
    """Turns Grappler's remapping off in all new Sessions, unless a program has set it explicitly.

    `say` is called before a Session is created without remapping.
    """
    # For Sessions without a `config`.
    tf.config.optimizer.set_experimental_options({"remapping": False})
    base = tf.compat.v1.Session.__bases__[0]  # also the base class of InteractiveSession
    original = base.__init__

    @functools.wraps(original)
    def __init__(self: Any, target: str = "", graph: Optional[tf.Graph] = None, config: Any = None):
        is_config = isinstance(config, tf.compat.v1.ConfigProto)
        if is_config and not config.graph_options.rewrite_options.remapping:
            config = copy.deepcopy(config)  # the program's own object stays unchanged
            options = config.graph_options.rewrite_options
            options.remapping = options.OFF
            say()
        elif config is None:
            say()
        original(self, target, graph, config)

    base.__init__ = __init__


def lock_global_step_increment(operation: Optional[tf.Operation]) -> Optional[tf.Operation]:
    """Makes the increment of the global step acquire the lock, if the step is a ref variable.

    TensorFlow's optimizers use no lock, so that increments by concurrent threads can be lost. A
    resource variable is always incremented under its lock. Returns `operation`.
    """
    if getattr(operation, "type", None) == "AssignAdd":
        operation._set_attr("use_locking", tf.compat.v1.AttrValue(b=True))
    return operation
