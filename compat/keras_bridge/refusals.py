"""Errors that explain what a bridged optimizer (one made by `to_keras`) cannot do."""

import contextlib

import tensorflow as tf

from legacy_opt import versions

from .. import messages


@contextlib.contextmanager
def no_foreign_variables(optimizer, owner):
    """Raises an error if an optimizer creates variables itself, because checkpoints lack these."""

    def create(next_creator, **arguments):
        if not owner.creates_variables:
            raise ValueError(
                f"{type(optimizer).__name__} creates a variable itself "
                f"({arguments.get('name') or 'without a name'}), which no Keras checkpoint "
                "would contain. Create state in _create_slots with _create_non_slot_variable, "
                "_zeros_slot or _get_or_make_slot."
            )
        return next_creator(**arguments)

    with contextlib.ExitStack() as stack:
        stack.enter_context(tf.variable_creator_scope(create))
        with tf.init_scope():  # where variables of a tf.function are created
            stack.enter_context(tf.variable_creator_scope(create))
        yield


def set_too_late(name, value):
    """Returns the error for setting a hyperparameter that a built graph contains as a constant."""
    return RuntimeError(
        f"{name}={value!r} comes too late: the graph that is built already has {name} as a "
        "constant, since it would compute other bits from a variable. Set it before the "
        "first step."
    )


@contextlib.contextmanager
def sparse_updates_explained(optimizer):
    """Explains why a sparse update cannot be built.

    Raises:
      NotImplementedError: the optimizer has no sparse update.
      ValueError: the update is being compiled with XLA, which lacks a kernel for it.
    """
    name = type(optimizer).__name__
    xla = versions.compiling_with_xla()
    graph = tf.compat.v1.get_default_graph() if xla else None
    before = set(graph.get_operations()) if xla else ()
    try:
        yield
    except NotImplementedError as error:
        if messages.text_of(error):
            raise
        raise NotImplementedError(
            f"{name} cannot apply sparse gradients (embeddings): it does not define "
            "_resource_apply_sparse(self, grad, handle, indices)."
        ) from error
    if not xla:
        return
    for op in graph.get_operations():
        if op in before:
            continue
        if op.type == "Unique" and not versions.xla_compiles_unique():
            raise ValueError(
                f"The XLA of TensorFlow {versions.tensorflow_version()} cannot sum the "
                f"gradients of equal ids: it has no kernel for Unique, with which {name} "
                "applies sparse gradients (embeddings). Compile without XLA, "
                "jit_compile=False, or use a newer TensorFlow."
            )
        if op.type.startswith("ResourceSparseApply"):
            fused = optimizer._driver.uses_fused_kernels
            raise ValueError(
                "XLA has no kernel for {}, with which {} applies sparse gradients (embeddings). "
                "{}, or compile without XLA: jit_compile=False.".format(
                    op.type,
                    name,
                    "Pass fused=False to to_keras"
                    if fused
                    else "Its class asks for that kernel itself, which fused=False cannot change: "
                    "write its sparse update with plain operations, as scatter_sub",
                )
            )
