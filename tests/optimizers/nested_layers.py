"""A Keras layer that contains other layers."""

import tensorflow as tf


class Block(tf.keras.layers.Layer):
    """Contains two dense layers without bias, with the names "LayerNorm" and "dense"."""

    def __init__(self):
        super().__init__(name="block")
        self.inner = tf.keras.layers.Dense(1, use_bias=False, name="LayerNorm")
        self.outer = tf.keras.layers.Dense(1, use_bias=False, name="dense")

    def call(self, inputs):
        return self.outer(self.inner(inputs))


def built_block():
    """Returns a `Block` whose weights exist."""
    block = Block()
    block(tf.ones([1, 2]))
    return block
