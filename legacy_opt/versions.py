"""What differs between TensorFlow and Keras versions, asked in one place.

Everything here goes by what a TensorFlow *has*; version numbers are for messages only. Private
names of TensorFlow that the package cannot do without are touched here and nowhere else.
"""

import contextlib
import functools
import importlib
import os
import sys
from typing import NamedTuple

import numpy as np
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


class Part(NamedTuple):
    """What a part of a partitioned variable is of the whole.

    Attributes:
      full_name: the name of the whole.
      full_shape: its shape, a list.
      shape: the part's shape, a list.
      offset: where the part begins in each axis, a list.
    """

    full_name: str
    full_shape: list
    shape: list
    offset: list

    @property
    def axis(self):
        """The axis along which the variable is cut; None if this part is all of it."""
        sizes = enumerate(zip(self.shape, self.full_shape))
        return next((axis for axis, (size, full) in sizes if size != full), None)

    @property
    def place(self):
        """The name of this part, by what it has of the whole: "w/rows_0_to_3_of_7"."""
        if self.axis is None:
            return self.full_name
        unit = {0: "rows", 1: "columns"}.get(self.axis, "axis_%d" % self.axis)
        begin, size, full = (each[self.axis] for each in (self.offset, self.shape, self.full_shape))
        return "%s/%s_%d_to_%d_of_%d" % (self.full_name, unit, begin, begin + size, full)


def part_of(variable):
    """Returns the `Part` that a variable is of a partitioned one; None if it is none."""
    whole = getattr(variable, "_save_slice_info", None)
    if whole is None:
        return None
    return Part(
        whole.full_name, list(whole.full_shape), list(whole.var_shape), list(whole.var_offset)
    )


class _Unsliced(tf.Variable.SaveSliceInfo):
    """Makes a Saver save a variable as a tensor of its own, under another name than the graph's."""

    spec = ""


def fit_slice_info(slot, variable, axes, part_by_part=False):
    """Tells the Saver what the slot of a partitioned variable holds.

    TensorFlow gives it the variable's own slice of the full shape, which is wrong for slots of
    other shapes. A slot whose axes include the one that the variable is cut along is a slice of
    one tensor, like the variable itself. Any other belongs to its part alone: its name in the
    checkpoint says which, so that a graph with other partitions does not find it.

    Args:
      slot: the slot variable.
      variable: its variable.
      axes: the variable's axes that the slot's are, in their order; () if it has others; None if
        the slot is of the whole variable, whichever part it lies beside.
      part_by_part: whether the checkpoint is to have each part's slot under its name in the graph.
    """
    part = part_of(variable)
    if part is None:
        return
    if not part_by_part and axes is not None:
        if list(axes) == list(range(len(part.shape))) and part_of(slot) is not None:
            return  # as TensorFlow has it
        if part.axis in axes:
            name = "%s/%s" % (part.full_name, slot.op.name[len(variable.op.name) + 1 :])
            full_shape, shape, offset = ([each[axis] for axis in axes] for each in part[1:])
            slot._set_save_slice_info(tf.Variable.SaveSliceInfo(name, full_shape, offset, shape))
            return
    name = slot.op.name
    if not part_by_part:
        place = part.full_name if axes is None else part.place
        name = name.replace(variable.op.name, place, 1)
    # A slice, be it all of the tensor, makes the Saver compare shapes; but not all have one.
    shape = slot.shape.as_list() if slot.shape.is_fully_defined() else []
    kind = tf.Variable.SaveSliceInfo if shape else _Unsliced
    slot._set_save_slice_info(kind(name, shape, [0] * len(shape), shape))


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


def keras_facts():
    """Tells which Keras `tf.keras` is, and imports it to find out.

    Returns:
      A dict of `version`, `generation` (2 or 3), `home` ("tensorflow", "keras" or "tf_keras": the
      package that holds it) and `backend`.

    Raises:
      ImportError: `tf.keras` cannot be imported.
    """
    keras = tf.keras
    try:
        home = keras.Model.__module__.split(".")[0]
    except (ImportError, RecursionError) as error:  # the latter where it is asked for again
        raise ImportError(
            "tf.keras cannot be imported; KERAS_BACKEND is %r. v1 optimizers run on TensorFlow "
            "alone: set the environment variable KERAS_BACKEND=tensorflow before Keras is imported."
            % os.environ.get("KERAS_BACKEND")
        ) from error
    version = getattr(keras, "__version__", None)
    if version is None:  # TensorFlow 2.13 to 2.15 do not pass it on
        version = importlib.import_module(home).__version__
    generation = 3 if hasattr(keras, "ops") else 2
    backend = keras.backend.backend() if generation == 3 else "tensorflow"
    return {"version": version, "generation": generation, "home": home, "backend": backend}


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


def optimizer_v2():
    """Returns the class OptimizerV2 of this machine's Keras 2, and imports Keras to find it.

    It is `tf.keras.optimizers.Optimizer` to TensorFlow 2.10, `tf.keras.optimizers.legacy.Optimizer`
    in 2.11 to 2.15, and lives in the package tf_keras from 2.16 on.

    Raises:
      ImportError: `tf.keras` is Keras 3 and tf_keras is not installed.
    """
    keras = keras_2()
    for home in (keras.optimizers, getattr(keras.optimizers, "legacy", None)):
        candidate = getattr(home, "Optimizer", None)
        if hasattr(candidate, "_resource_apply_dense"):
            return candidate
    raise ImportError("This Keras (%s) has no OptimizerV2." % keras.__name__)


def keras_2():
    """Returns Keras 2: `tf.keras`, or the package tf_keras where `tf.keras` is Keras 3.

    Raises:
      ImportError: `tf.keras` is Keras 3 and tf_keras is not installed.
    """
    try:
        if keras_facts()["generation"] == 2:
            return tf.keras
    except ImportError:
        pass  # a Keras 3 whose backend is not there, which is no matter here
    try:
        return importlib.import_module("tf_keras")
    except ImportError as error:
        raise ImportError(
            "tf.keras is Keras 3 here, and OptimizerV2 needs Keras 2. Install it with: "
            "pip install tf-keras"
        ) from error


def keras_3():
    """Returns Keras 3, the package keras, whose classes are those of `tf.keras` if that is Keras 3.

    Raises:
      ImportError: there is no Keras 3, it is too old, or runs on something else than TensorFlow.
    """
    try:
        keras = importlib.import_module("keras")
    except ImportError:
        keras = None
    if not hasattr(keras, "ops"):
        raise ImportError(
            "There is no Keras 3 here; tf.keras is Keras %s. Keras 3 needs TensorFlow 2.16 or "
            "newer. For the Keras that is here, pass api='optimizer_v2'." % keras_facts()["version"]
        )
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            "Keras runs on %s here, and v1 optimizers on TensorFlow alone. Set the environment "
            "variable KERAS_BACKEND=tensorflow before Keras is imported." % keras.backend.backend()
        )
    if not isinstance(getattr(keras.optimizers.Optimizer, "iterations", None), property):
        raise ImportError(
            "Keras %s is too old for the bridge: its optimizers count no accumulated steps. "
            "Install a newer one with: pip install -U keras" % keras.__version__
        )
    return keras


def kind_of_keras_optimizer(value):
    """Tells what a Keras optimizer, or a class of them, is: "optimizer_v2", "keras3" or None.

    Raises:
      ImportError: it is of a Keras 3 that is too old or runs on something else than TensorFlow.
    """
    cls = value if isinstance(value, type) else type(value)
    if any(base.__name__ == "OptimizerV2" for base in cls.__mro__):
        return "optimizer_v2"
    keras = sys.modules.get("keras")
    if hasattr(keras, "ops") and issubclass(cls, keras.optimizers.Optimizer):
        keras_3()
        return "keras3"
    return None


def create_optimizer_weights(optimizer, variables):
    """Makes all that a Keras optimizer keeps for these variables, where it is not there yet."""
    if kind_of_keras_optimizer(optimizer) == "keras3":
        optimizer.build(variables)
    elif hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(variables)
    else:  # TensorFlow up to 2.2
        optimizer = getattr(optimizer, "_optimizer", optimizer)  # in a LossScaleOptimizer
        _ = optimizer.iterations
        optimizer._create_hypers()
        optimizer._create_slots(variables)


def own_aggregator(optimizer):
    """Returns the `gradient_aggregator` that a Keras 2 optimizer was given, or None."""
    aggregator = getattr(optimizer, "gradient_aggregator", None)
    by_default = getattr(aggregator, "__name__", None) == "all_reduce_sum_gradients"
    return None if by_default else aggregator


def awaits_restoration(trackable):
    """Whether a checkpoint holds more for an object than it has made so far."""
    return any(getattr(trackable, "_self_unconditional_deferred_dependencies", {}).values())


def keras_3_distributes(strategy):
    """Whether Keras 3 divides a loss among a strategy's replicas, whose gradients it sums.

    Measured: to Keras 3.7 it does not, so `fit` trains with a multiple of the gradient.
    """
    if strategy.num_replicas_in_sync == 1:
        return True
    loss = keras_3().losses.MeanSquaredError()
    with tf.init_scope(), strategy.scope():
        return float(loss(tf.ones([1, 1]), tf.zeros([1, 1]))) < 1


def is_keras_3_variable(value):
    """Whether `value` is a variable of Keras 3, which is no `tf.Variable` but holds one."""
    # Not by keras.Variable, of which the variables of layers are no instances up to Keras 3.6.
    return isinstance(getattr(value, "dtype", None), str)


def tf_variable(value):
    """Returns the `tf.Variable` that a variable of Keras 3 holds, anything else as it is."""
    return value.value if is_keras_3_variable(value) else value


def value_of(variable):
    """Returns the value of a variable, as an array; in a TF1 graph that of Keras' own session."""
    variable = tf_variable(variable)
    if for_a_session():
        return np.asarray(keras_2().backend.get_value(variable))
    return variable.numpy()


def assign_to(variable, value):
    """Gives a variable a value; in a TF1 graph in Keras' own session."""
    variable = tf_variable(variable)
    if for_a_session():
        keras_2().backend.set_value(variable, value)
    else:
        variable.assign(value)


def in_stateless_scope():
    """Whether Keras 3 is collecting new values of variables in place of assigning them."""
    scope = sys.modules.get("keras.src.backend.common.stateless_scope")
    return scope is not None and scope.in_stateless_scope()


def slot_key(variable):
    """Returns the key under which OptimizerV2 keeps the slots of `variable`."""
    return _optimizer_v2_module()._var_key(variable)


@functools.lru_cache(maxsize=None)
def _optimizer_v2_module():
    (base,) = [cls for cls in optimizer_v2().__mro__ if cls.__name__ == "OptimizerV2"]
    return sys.modules[base.__module__]


def own_component(variable):
    """Returns this replica's component of a distributed variable, any other as it is.

    To be called where one replica is being updated.
    """
    distributed = getattr(tf.distribute, "DistributedValues", ())  # from TensorFlow 2.1 on
    if not isinstance(variable, distributed) and not hasattr(variable, "_distributed_container"):
        return variable
    for name in ("_get", "get"):  # the first from TensorFlow 2.1 on
        if callable(getattr(variable, name, None)):
            return getattr(variable, name)()
    return variable


def saveable(name, variable):
    """Returns what a dict for a v1 Saver may have for a variable, whose name there is `name`."""
    by_attribute = getattr(variable, "_gather_saveables_for_checkpoint", dict)()
    for factory in by_attribute.values():
        if callable(factory):  # of a distributed variable, for which a Saver knows no other way
            return factory(name)
    return variable


def distributed_variable(variable):
    """Returns the distributed variable that `variable` is a component of, any other as it is."""
    container = getattr(variable, "_distributed_container", None)
    distributed = getattr(tf.distribute, "DistributedValues", ())
    if container is None and not isinstance(variable, distributed):
        # Newer TensorFlow notes it at the handle; asked for a handle, a distributed one fails.
        container = getattr(getattr(variable, "handle", None), "_distributed_container", None)
    whole = container() if callable(container) else None
    return variable if whole is None else whole


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


def track_keras_variable(variable):
    """Tells graph-mode Keras that it has to initialize a variable."""
    _optimizer_v2_module().backend.track_variable(variable)


def writing_saved_model():
    """Whether TensorFlow is writing a SavedModel, and its saving code is among the callers.

    No version tells an optimizer for what kind of file it is asked for its slots.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").endswith(".python.saved_model.save"):
            return True
        frame = frame.f_back
    return False


def asked_by_a_checkpoint():
    """Whether the caller was called by the code that writes object-based checkpoints."""
    asking = sys._getframe(2).f_globals.get("__name__", "")
    return ".python.training.tracking." in asking or ".python.checkpoint." in asking


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


KERAS_PACKAGE = "legacy_opt"  # what newer Keras puts before the names of classes it saves


def register_with_keras_3(cls):
    """Lets Keras 3 load `cls`."""
    keras_3().saving.register_keras_serializable(package=KERAS_PACKAGE)(cls)


def register_with_keras_2(cls):
    """Lets Keras 2 load `cls` under its own and its registered name."""
    utils = keras_2().utils
    if hasattr(utils, "register_keras_serializable"):
        utils.register_keras_serializable(package=KERAS_PACKAGE)(cls)
    utils.get_custom_objects()[cls.__name__] = cls
