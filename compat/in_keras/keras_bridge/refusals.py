"""Errors that explain what a bridged optimizer (made by `to_keras`) cannot do."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import tensorflow as tf

from legacy_opt import DecoupledWeightDecayExtension, versions
from legacy_opt.core.types import V1Optimizer, Variable
from legacy_opt.wrappers.base import OptimizerWrapper

from ... import messages
from ..keras_adapters.base import refuse_ref_variable
from .protocol import StateOwner


@contextlib.contextmanager
def no_foreign_variables(optimizer: V1Optimizer, owner: StateOwner):
    """Raises a ValueError if `optimizer` itself, not `owner`, creates a variable in this scope."""

    def create(next_creator: Callable[..., Variable], **arguments: Any) -> Variable:
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
        with tf.init_scope():  # a tf.function creates its variables in an init_scope
            stack.enter_context(tf.variable_creator_scope(create))
        yield


def check_one_replica(optimizer: V1Optimizer):
    """Raises a ValueError in a distribution strategy, for an optimizer with own apply_gradients."""
    if tf.distribute.has_strategy():
        is_wrapper = isinstance(optimizer, OptimizerWrapper)
        reason = "wraps other optimizers" if is_wrapper else "overrides apply_gradients"
        raise ValueError(
            f"{type(optimizer).__name__} {reason}, which to_keras supports in one replica only. "
            "Train without a distribution strategy, or override _prepare and _finish."
        )


def check_has_weight_decay(optimizer: V1Optimizer):
    """Raises a TypeError for `decay_var_list` if an optimizer has no decoupled weight decay."""
    if not isinstance(optimizer, DecoupledWeightDecayExtension):
        raise TypeError(
            f"decay_var_list: {type(optimizer).__name__} has no decoupled weight decay. "
            "Omit decay_var_list, or use AdamWOptimizer, MomentumWOptimizer or a class made by "
            "extend_with_decoupled_weight_decay."
        )


def check_global_step(global_step: Any, may_be_ref: bool):
    """Raises the errors of `to_keras` for its argument `global_step`."""
    if isinstance(global_step, str) and global_step == "iterations":
        return
    # On TensorFlow 1.15, the variables of a strategy are no tf.Variables.
    is_variable = hasattr(global_step, "assign_add") and global_step.dtype.base_dtype.is_integer
    if global_step is not None and not (is_variable and global_step.shape.rank == 0):
        raise TypeError(
            "global_step must be an integer scalar variable, such as "
            "tf.compat.v1.train.get_or_create_global_step(), None for an optimizer that increments "
            f'no global step, or "iterations", got {global_step!r}.'
        )
    if not versions.for_a_session():
        raise ValueError(
            f"global_step={global_step!r} is for TF1 graphs. In eager execution and tf.function, "
            "v1's decays follow Keras' iterations: do not pass global_step."
        )
    if global_step is not None and not may_be_ref:
        refuse_ref_variable(global_step)


def set_too_late(name: str, value: float) -> RuntimeError:
    """Returns the error for setting a hyperparameter that a built graph contains as a constant."""
    return RuntimeError(
        f"{name} can no longer be set to {value!r}: a graph has been built that contains {name} "
        "as a constant, because a variable would change the last bits of the results. Set "
        f"{name} before the first training step."
    )


@contextlib.contextmanager
def sparse_updates_explained(optimizer: V1Optimizer):
    """Raises errors that explain why the sparse update in this scope cannot be built."""
    name = type(optimizer).__name__
    graph = tf.compat.v1.get_default_graph() if versions.compiling_with_xla() else None
    before = () if graph is None else set(graph.get_operations())
    try:
        yield
    except NotImplementedError as error:
        if messages.text_of(error):
            raise
        raise NotImplementedError(
            f"{name} cannot apply sparse gradients (embeddings): it does not define "
            "_resource_apply_sparse(self, grad, handle, indices)."
        ) from error
    if graph is None:
        return
    for op in [each for each in graph.get_operations() if each not in before]:
        if op.type == "Unique" and not versions.xla_compiles_unique():
            raise ValueError(
                f"The XLA of TensorFlow {versions.tensorflow_version()} cannot sum the "
                f"gradients of equal ids: it has no kernel for Unique, with which {name} "
                "applies sparse gradients (embeddings). Compile without XLA, "
                "jit_compile=False, or use a newer TensorFlow."
            )
        if op.type.startswith("ResourceSparseApply"):
            way_out = "Pass fused=False to to_keras"
            if not optimizer._driver.uses_fused_kernels:
                way_out = (
                    "fused=False has no effect here, because the optimizer's class calls that "
                    "kernel itself: write its sparse update with plain operations like scatter_sub"
                )
            raise ValueError(
                f"XLA has no kernel for {op.type}, with which {name} applies sparse gradients "
                f"(embeddings). {way_out}, or compile without XLA: jit_compile=False."
            )
