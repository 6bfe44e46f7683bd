"""Records what an OptimizerV2 of TensorFlow 1.15 and of 2.10 saves, in tests/data.

From the checkout's root::

    .nox/1.15/bin/python -m tests.tools.record_optimizer_v2 tests/data/optimizer_v2_tf115
    .nox/2.10/bin/python -m tests.tools.record_optimizer_v2 tests/data/optimizer_v2_tf210

Each folder contains a tf.train.Checkpoint (`saved`), the .h5 file of the whole model, and
`values.npz` with the weights of the model and of the optimizer, in Keras' order.
"""

import os
import sys

import numpy as np
import tensorflow as tf

keras = tf.keras


def main(folder):
    """Trains a small model, and saves it in each form."""
    model = keras.Sequential(
        [keras.layers.Dense(2, input_shape=(3,), name="first"), keras.layers.Dense(1, name="last")]
    )
    model.compile(keras.optimizers.Adam(0.1, amsgrad=True), "mse")
    x = np.random.RandomState(0).rand(12, 3)
    model.fit(x, x[:, :1], batch_size=4, verbose=0)
    session = {} if tf.executing_eagerly() else {"session": keras.backend.get_session()}
    os.makedirs(folder, exist_ok=True)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    checkpoint.save(os.path.join(folder, "saved"), **session)
    os.remove(os.path.join(folder, "checkpoint"))
    for name in os.listdir(folder):
        new_name = name.replace("saved-1", "saved")
        os.rename(os.path.join(folder, name), os.path.join(folder, new_name))
    model.save(os.path.join(folder, "model.h5"))
    values = {f"weight_{n}": each for n, each in enumerate(model.get_weights())}
    values.update((f"state_{n}", e) for n, e in enumerate(model.optimizer.get_weights()))
    np.savez_compressed(os.path.join(folder, "values.npz"), **values)


if __name__ == "__main__":
    main(sys.argv[1])
