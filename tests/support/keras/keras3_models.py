"""Keras 3 models whose gradients are their inputs: `keras_models` for the other Keras.

`keras_models.problem` makes the values and gradients, and its `loop` trains here as well.
"""

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras
from tests.support import running
from tests.support.keras import keras_models

keras = versions.keras_3()
PROBLEM = keras_models.problem()


def bridged(optimizer, **arguments):
    """Returns the Keras 3 optimizer for a v1 optimizer, or for the name of one."""
    if isinstance(optimizer, str):
        optimizer = keras_models.make(optimizer)
    return to_keras(optimizer, api="keras3", **arguments)


def session(name, problem, **arguments):
    """Returns what the v1 optimizer computes in a Session."""
    return running.session(problem, lambda step: keras_models.make(name, step), True, **arguments)


class FedLoss(keras.layers.Layer):
    """Holds a problem's variables; its output's gradients are its inputs."""

    def __init__(self, values, constraint=None, **kwargs):
        super().__init__(**kwargs)
        self.values = values
        self.constraint = constraint
        self.runs = 0  # how often it was traced, or run eagerly

    def build(self, shapes):
        for name, value in self.values.items():
            variable = self.add_weight(
                shape=value.shape, initializer="zeros", name=name, constraint=self.constraint
            )
            variable.assign(value)
            setattr(self, name, variable)
        self.built = True

    def call(self, inputs):
        self.runs += 1
        ids, values, matrix = (batch[0] for batch in inputs)
        variables = {name: tf.convert_to_tensor(getattr(self, name)) for name in self.values}
        total = keras_models.loss({"table": (values, ids), "matrix": matrix}, variables)
        return tf.reshape(total, [1, 1])

    @property
    def variables_by_name(self):
        return {name: getattr(self, name) for name in self.values}


def fed_model(problem, cls=keras.Model, **arguments):
    """Returns a model, to be fitted with batches of one, that the problem's gradients train.

    Args:
      problem: the `Problem`.
      cls: the class of the model.
      **arguments: those of the layer.
    """
    rows = len(problem.gradients[0]["table"].ids)
    inputs = [
        keras.Input([rows], dtype="int64", name="ids"),
        keras.Input([rows, 3], name="values"),
        keras.Input([4, 2], name="matrix"),
    ]
    return cls(inputs, FedLoss(problem.values, name="fed", **arguments)(inputs))


class Recorder(keras.callbacks.Callback):
    """Notes the weights after each batch of `fit`."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):
        variables = self.model.get_layer("fed").variables_by_name
        self.steps.append({name: variable.numpy() for name, variable in variables.items()})


def fit(problem, optimizer, callbacks=(), model=None, epochs=1, **compiling):
    """Trains with `compile` and `fit` and returns (trace, model).

    Args:
      problem: the `Problem`.
      optimizer: the Keras optimizer.
      callbacks: a list of Keras callbacks.
      model: what `fed_model` returned.
      epochs: how often to go through the problem's gradients.
      **compiling: arguments of `compile`.
    """
    model = fed_model(problem) if model is None else model
    model.compile(optimizer, keras_models.the_output, **compiling)
    recorder = Recorder()
    keras_models.fit_data(model, problem, epochs, [recorder] + list(callbacks))
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    variables = model.get_layer("fed").variables_by_name
    slots = {key: slot.numpy() for key, slot in keras_models.slots_of(inner, variables).items()}
    return running.Trace(recorder.steps, slots), model


def run(optimizer, way, problem=PROBLEM, **options):
    """Trains in a loop or with fit, in a function or eagerly, and returns the trace."""
    if way.startswith("fit"):
        return fit(problem, optimizer, run_eagerly=way == "fit eagerly", **options)[0]
    return keras_models.loop(problem, optimizer, way, **options)[0]


def rates(problem, rate_of):
    """Returns what gradient descent leaves behind, in NumPy, with a rate for each step."""
    now, steps = dict(problem.values), []
    for number, gradients in enumerate(problem.gradients):
        rows = np.zeros_like(now["table"])
        np.add.at(rows, gradients["table"].ids, gradients["table"].values)
        rate = np.float32(rate_of(number))
        changes = {"table": rows, "matrix": gradients["matrix"]}
        now = {name: now[name] - rate * changes[name] for name in now}
        steps.append(now)
    return steps


def trained(variables, optimizer, way):
    """Trains these variables and returns the values after each step."""

    def step(gradients):
        optimizer.apply_gradients(keras_models.pairs(gradients, variables))

    if way == "function":
        step = tf.function(step, input_signature=[running.signature(PROBLEM)])
    values = []
    for gradients in PROBLEM.gradients:
        step(keras_models._constants(gradients))
        values.append({name: variable.numpy() for name, variable in variables.items()})
    return values
