"""Moves a training with an OptimizerV2 of your own from tf_keras to Keras 3, with its state.

    python examples_graph_mode/optimizer_v2_to_keras3.py

`Lion` is written for Keras 2, as the optimizers of many projects are; Keras 3 refuses it. A model
trains with it on flights in tf_keras, and is saved. `to_keras` runs Lion in Keras 3, and
`load_optimizer_v2` loads the weights, the slots and the number of steps. Then both models train on
the same flights, and their weights and slots are compared with np.array_equal. The exit code is 0
if all are equal. At the end, the Keras 3 model trains on the flights that follow.

The program needs TensorFlow 2.16 or newer, Keras 3 and tf_keras.
"""

import sys
import tempfile

import numpy as np
import tensorflow as tf

from legacy_opt.compat import load_optimizer_v2, to_keras

try:
    import keras
    import tf_keras
except ImportError:
    keras = tf_keras = None
if not hasattr(keras, "ops") or tf_keras is None:
    sys.exit(f"Needs TensorFlow 2.16 or newer, keras 3 and tf-keras; this is {tf.__version__}.")

from flights.data import load_flights

STEPS, BATCH = 100, 64  # steps of each part of the training


class Lion(tf_keras.optimizers.legacy.Optimizer):
    """Adds the sign of a momentum. A sparse gradient updates the rows of the batch only."""

    def __init__(self, learning_rate=3e-4, beta_1=0.9, beta_2=0.99, name="Lion", **kwargs):
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", learning_rate)
        self._set_hyper("beta_1", beta_1)
        self._set_hyper("beta_2", beta_2)

    def _create_slots(self, var_list):
        for variable in var_list:
            self.add_slot(variable, "momentum")

    def _change(self, grad, momentum, dtype):
        beta_1, beta_2 = self._get_hyper("beta_1", dtype), self._get_hyper("beta_2", dtype)
        change = self._decayed_lr(dtype) * tf.sign(beta_1 * momentum + (1 - beta_1) * grad)
        return change, beta_2 * momentum + (1 - beta_2) * grad

    def _resource_apply_dense(self, grad, var, apply_state=None):
        slot = self.get_slot(var, "momentum")
        change, momentum = self._change(grad, slot.read_value(), var.dtype.base_dtype)
        return tf.group(var.assign_sub(change), slot.assign(momentum))

    def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
        slot = self.get_slot(var, "momentum")
        change, momentum = self._change(grad, tf.gather(slot, indices), var.dtype.base_dtype)
        rows = slot.scatter_update(tf.IndexedSlices(momentum, indices))
        return tf.group(var.scatter_sub(tf.IndexedSlices(change, indices)), rows)

    def get_config(self):
        names = ("learning_rate", "beta_1", "beta_2")
        numbers = {name: self._serialize_hyperparameter(name) for name in names}
        return dict(super().get_config(), **numbers)


def new_model(home, flights, optimizer):
    """Returns a compiled model of `home`, which is tf_keras or keras."""
    ids = home.Input([flights.ids.shape[1]], dtype="int32", name="ids")
    dense = home.Input([flights.dense.shape[1]], name="dense")
    # Without biases: Keras 2 and 3 add the gradients of a bias in another order.
    embedded = home.layers.Embedding(flights.vocabulary_size, 8, name="table")(ids)
    joined = home.layers.Concatenate()([home.layers.Flatten()(embedded), dense])
    hidden = home.layers.Dense(16, "relu", use_bias=False, name="hidden")(joined)
    logits = home.layers.Dense(1, use_bias=False, name="output")(hidden)
    model = home.Model([ids, dense], logits, name="late")
    loss = home.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)  # XLA would round differently
    return model


def train(model, flights, part):
    """Trains on one part of the flights in time order, and returns the mean loss."""
    now = flights.after(part * STEPS * BATCH).first(STEPS * BATCH)
    data = tf.data.Dataset.from_tensor_slices(((now.ids, now.dense), now.late[:, np.newaxis]))
    history = model.fit(data.batch(BATCH), verbose=0, shuffle=False)
    return history.history["loss"][0]


def main():
    """Runs the example."""
    tf.config.threading.set_intra_op_parallelism_threads(1)  # the order of sums is the same
    flights = load_flights().first(3 * STEPS * BATCH)
    old = new_model(tf_keras, flights, Lion())
    print(f"tf_keras: loss {train(old, flights, 0):.4f} in steps 1 to {STEPS}")
    new = new_model(keras, flights, to_keras(Lion(), api="keras3"))
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(model=old, optimizer=old.optimizer).save(f"{folder}/old")
        loaded = load_optimizer_v2(path, new, new.optimizer).transferred
    print(f"{len(loaded)} variables and slots loaded into Keras 3.")
    print(f"tf_keras: loss {train(old, flights, 1):.4f} in the next {STEPS} steps")
    print(f"Keras 3:  loss {train(new, flights, 1):.4f} in the same steps")
    if int(old.optimizer.iterations) != int(new.optimizer.iterations):
        sys.exit("The numbers of steps differ.")
    for one, other in zip(old.trainable_variables, new.trainable_variables):
        slots = [
            each.get_slot(variable, "momentum")
            for each, variable in ((old.optimizer, one), (new.optimizer, other))
        ]
        if not np.array_equal(one, other.numpy()) or not np.array_equal(*slots):
            sys.exit(f"{other.path} differs.")
    print("Equal bit for bit: all weights and slots.")
    print(f"Keras 3:  loss {train(new, flights, 2):.4f} in {STEPS} further steps")


if __name__ == "__main__":
    main()
