"""One Keras model that trains every optimizer that `to_keras` accepts."""

import numpy as np

from legacy_opt import MultiOptimizer, OptimizerWrapper, compat
from tests.support.corpus.graphs import MAKERS, SHAPE, STEPS, start

# A wrapper that needs variables; and the class of Keras replaces the other.
LEFT_OUT = ("VariableClippingOptimizer", "LossScaleOptimizer")
INPUTS = np.array([[1.0, -0.5, 0.25, 2.0]], np.float32)


def build(api):
    """Returns a new compiled model, one layer for each variable of an optimizer.

    Args:
      api: the `KerasApi`.
    """
    keras = api.keras
    made = {name: make(None, {}) for name, make in MAKERS.items() if name not in LEFT_OUT}
    inputs = keras.Input([SHAPE[0]], name="inputs")
    outputs, weights, routes = [], [], []
    for name, optimizer in made.items():
        layer_name = name.replace(".", "_")
        routes.append((optimizer, f"(.*/)?{layer_name}_"))
        for part in ("matrix", "table")[: 1 + isinstance(optimizer, OptimizerWrapper)]:
            layer = keras.layers.Dense(SHAPE[1], use_bias=False, name=f"{layer_name}_{part}")
            outputs.append(layer(inputs))
            weights.append(start(f"{name}/{part}"))
    model = keras.Model(inputs, keras.layers.Concatenate(name="outputs")(outputs))
    model.set_weights(weights)
    model.compile(api.bridged(MultiOptimizer(routes)), keras.losses.MeanSquaredError())
    return model


def train(model, first=0, last=STEPS):
    """Trains steps; each is a batch of one example."""
    model.run_eagerly = True  # takes less time than building a graph
    for number in range(first, last):
        target = np.full([1, model.output_shape[1]], 0.5 + number, np.float32)
        model.train_on_batch(INPUTS, target)


def state(model):
    """Returns all weights of a model and its optimizer, in Keras' order, by number."""
    optimizer = model.optimizer
    is_of_keras_2 = hasattr(optimizer, "get_weights")
    own = optimizer.get_weights() if is_of_keras_2 else [v.numpy() for v in optimizer.variables]
    arrays = {f"weight {number:03d}": each for number, each in enumerate(model.get_weights())}
    arrays.update((f"state {number:03d}", np.asarray(each)) for number, each in enumerate(own))
    return arrays


def load(api, path):
    """Returns the model in a file."""
    return api.keras.models.load_model(path, custom_objects=compat.custom_objects(api.name))
