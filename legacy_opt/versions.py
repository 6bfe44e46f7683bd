"""What differs between TensorFlow and Keras versions, asked in one place.

Everything here goes by what a TensorFlow *has*; version numbers are for messages only. Private
names of TensorFlow that the package cannot do without are touched here and nowhere else.
"""

import importlib

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


def fit_slice_info(slot, variable):
    """Corrects what a slot of another shape than its partitioned variable tells the Saver.

    TensorFlow gives the slot of a partitioned variable the variable's own slice of the full
    shape, which is wrong for slots with a value per row or per variable. One value per row of a
    variable that is partitioned by rows makes one tensor ``[all rows]`` in the checkpoint, like
    the variable itself; other slots are saved part by part under their own names.
    """
    whole = getattr(variable, "_save_slice_info", None)
    if whole is None or slot.shape.as_list() == variable.shape.as_list():
        return
    by_rows = all(offset == 0 for offset in whole.var_offset[1:]) and (
        list(whole.var_shape[1:]) == list(whole.full_shape[1:])
    )
    info = None
    if by_rows and slot.shape.as_list() == [whole.var_shape[0]]:
        real_name = slot.op.name[len(variable.op.name) + 1 :]
        info = tf.Variable.SaveSliceInfo(
            "%s/%s" % (whole.full_name, real_name),
            [whole.full_shape[0]],
            [whole.var_offset[0]],
            [whole.var_shape[0]],
        )
    slot._set_save_slice_info(info)


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
    """
    keras = tf.keras
    home = keras.Model.__module__.split(".")[0]
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
    """Whether this is a TensorFlow that still has `tf.contrib`."""
    return hasattr(tf, "contrib")
