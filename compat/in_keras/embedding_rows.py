"""read_rows_only: makes Keras 3's Embedding layers read only the rows of the batch.

Keras 3's Embedding converts its whole table to a tensor in each training step. If the optimizer
then writes some rows, TensorFlow first copies the table.
"""

from __future__ import annotations

import types
from typing import Any, List, Optional

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import KerasLayer, KerasModel
from legacy_opt.core.user_warnings import warn

# Attributes with functions that Keras has traced. If they are None, Keras traces the new code.
_TRACED = ("train_function", "test_function", "predict_function")


def read_rows_only(model: KerasModel) -> List[KerasLayer]:
    """Makes the Embedding layers of a Keras 3 model read only the rows of the batch.

    The duration of a training step then depends on the batch, not on the size of the tables, if the
    optimizer updates only rows, too (such as LazyAdam). Losses, gradients and tables stay equal bit
    for bit. Negative ids count from the end, as before. Configurations, saved files and clones of
    the model contain plain Keras layers: call this function again for a loaded or cloned model. If
    a model also reads a table elsewhere (a tied output layer, a regularizer of a shared table), the
    whole table is read anyway, and the last bits may differ, because TensorFlow then sums the
    gradients in another order.

    A layer goes on as before while it is quantized, uses LoRA, or is compiled with XLA
    (`jit_compile`), and for ids that are a SparseTensor. Your own functions must be traced
    after this call.

    Example::

        model = keras.Sequential([keras.layers.Embedding(1000, 8), keras.layers.Dense(1)])
        model.compile(legacy_opt.compat.to_keras(legacy_opt.LazyAdamOptimizer(0.01)), "mse")
        legacy_opt.compat.read_rows_only(model)

    Args:
      model: a Keras 3 model, before or after `compile`, or a layer. Nested models and layers are
        included.

    Returns:
      A list of the layers that were changed. A warning names each Embedding that was left alone.

    Raises:
      ImportError: Keras 3 is not installed.
      TypeError: `model` is not a model or layer of Keras 3.
    """
    keras = versions.keras_3()
    if not isinstance(model, keras.layers.Layer):
        raise TypeError(
            f"model must be a model or layer of Keras 3, got {model!r}. The Embedding layers of "
            "Keras 2 read only the rows of the batch already."
        )
    layers = list(model._flatten_layers())
    compiled = any(getattr(each, "_jit_compile", None) is True for each in layers)
    changed = []
    for layer in layers:
        if not isinstance(layer, keras.layers.Embedding) or "call" in vars(layer):
            continue  # no Embedding, or changed by an earlier call
        reason = "jit_compile=True" if compiled else _reason_to_leave(layer, keras)
        if reason is not None:
            warn(f"read_rows_only leaves {layer.name!r} alone: {reason}.", UserWarning)
            continue
        vars(layer)["call"] = types.MethodType(_call, layer)  # Keras would track an assignment
        changed.append(layer)
    if changed:
        for layer in layers:
            for name in _TRACED:
                if getattr(layer, name, None) is not None:
                    setattr(layer, name, None)
    return changed


def _reason_to_leave(layer: KerasLayer, keras: Any) -> Optional[str]:
    original = keras.layers.Embedding
    for name in ("call", "embeddings"):
        if getattr(type(layer), name) is not getattr(original, name):
            return f"its class {type(layer).__name__} overrides {name}"
    if layer.quantization_mode:
        return f"it is quantized ({layer.quantization_mode})"
    return "it uses LoRA" if layer.lora_enabled or layer.lora_rank else None


def _call(layer: KerasLayer, inputs: Any) -> Any:
    """Computes what `keras.layers.Embedding.call` computes, but reads no other rows."""
    table = _table_of(layer)
    if table is None or not isinstance(inputs, (tf.Tensor, tf.RaggedTensor)):
        return type(layer).call(layer, inputs)
    ids = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int32)
    rows = tf.ragged.map_flat_values(_rows, table, ids)
    return tf.cast(rows, layer.compute_dtype)


def _table_of(layer: KerasLayer) -> Optional[tf.Variable]:
    """Returns the table of a layer; None if `tf.gather` cannot read the rows from a variable."""
    if layer.quantization_mode or layer.lora_enabled:
        return None
    if versions.in_stateless_scope() or versions.compiling_with_xla():
        return None
    table = versions.tf_variable_without_cast(layer._embeddings)
    return table if isinstance(table, tf.Variable) else None


def _rows(table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
    from_start = tf.where(ids < 0, ids + table.shape[0], ids)  # `tf.shape` would read the table
    return tf.gather(table, from_start)
