"""The embedding of `tf.contrib.layers` that the package tf_slim lacks."""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

__all__ = ["embed_sequence"]

v1 = tf.compat.v1


def embed_sequence(
    ids: Any,
    vocab_size: Optional[int] = None,
    embed_dim: Optional[int] = None,
    unique: bool = False,
    initializer: Optional[Any] = None,
    regularizer: Optional[Callable[[Any], Any]] = None,
    trainable: bool = True,
    scope: Optional[Any] = None,
    reuse: Optional[bool] = None,
) -> tf.Tensor:
    """Looks up sequences of ids in the variable `embeddings` of shape [vocab_size, embed_dim].

    Args:
      ids: int32 or int64 ids of shape [batch, length].
      vocab_size: the number of ids; not needed if `reuse` is true.
      embed_dim: the size of an embedding; not needed if `reuse` is true.
      unique: whether to look up each id only once, however often `ids` contains it.
      initializer: the initializer of the variable; by default that of the scope.
      regularizer: a function of the variable, whose result is a regularization loss.
      trainable: whether the variable is trained.
      scope: the variable scope, or its name; "EmbedSequence" by default.
      reuse: whether the variable exists already.

    Returns:
      A float32 tensor of shape [batch, length, embed_dim].
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(
            "Must specify vocab size and embedding dimension when not reusing. "
            f"Got vocab_size={vocab_size} and embed_dim={embed_dim}"
        )
    with v1.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape = None  # if it is not known, the existing variable has it
        if embed_dim is not None and (vocab_size is not None or not reuse):
            shape = [vocab_size, embed_dim]
        embeddings = v1.get_variable(
            "embeddings",
            shape=shape,
            dtype=tf.float32,  # also in a scope with another dtype
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.MODEL_VARIABLES],
        )
        if not unique:
            return v1.nn.embedding_lookup(embeddings, ids)
        ids = tf.convert_to_tensor(ids)
        unique_ids, positions = tf.unique(tf.reshape(ids, [-1]))
        rows = v1.nn.embedding_lookup(embeddings, unique_ids)
        return tf.gather(rows, tf.reshape(positions, tf.shape(ids)))
