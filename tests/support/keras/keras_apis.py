"""The two Keras APIs that optimizers are bridged to, each behind the same functions.

Their models have the gradients of a `keras_models.problem` as inputs.
"""

import functools

import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras
from tests.support import running
from tests.support.keras import keras_models


class KerasApi:
    """A Keras API: `name` is the argument `api` of `to_keras`.

    Keras is imported when it is needed: where Keras 3 is missing, a test may still name it.
    """

    def __init__(self, name):
        self.name = name

    @property
    def keras(self):
        """The Keras module."""
        return versions.keras_2() if self.name == "optimizer_v2" else versions.keras_3()

    @property
    def optimizers(self):
        """The module of Keras' own optimizers with this API."""
        home = self.keras.optimizers
        is_there = self.name == "keras3" or issubclass(home.SGD, versions.optimizer_v2())
        return home if is_there else home.legacy  # 2.10 has both, and the latter are others

    def bridged(self, optimizer, **arguments):
        """Returns the Keras optimizer for a v1 optimizer, or for the name of one."""
        if isinstance(optimizer, str):
            optimizer = keras_models.make(optimizer)
        return to_keras(optimizer, api=self.name, **arguments)

    def variable(self, value, **arguments):
        """Returns a variable of the kind that the layers of this Keras have."""
        make = tf.compat.v2.Variable if self.name == "optimizer_v2" else self.keras.Variable
        return make(value, **arguments)

    def number(self, variable):
        """Returns a hyperparameter as a float: Keras 2 may hold a float or a variable."""
        return float(variable.numpy() if hasattr(variable, "numpy") else variable)

    def schedule(self, optimizer):
        """Returns the schedule that is an optimizer's learning rate."""
        return optimizer.learning_rate if self.name == "optimizer_v2" else optimizer._learning_rate

    def recorder(self):
        """Returns a callback whose `steps` are the weights after each batch of `fit`."""
        return _classes(self.keras)[1]()

    def fed_model(self, problem, cls=None, **arguments):
        """Returns a model, to be fitted with batches of one, that the problem's gradients train.

        Args:
          problem: the `Problem`.
          cls: the class of the model; None for keras.Model.
          **arguments: those of the layer.
        """
        rows = len(problem.gradients[0]["table"].ids)
        inputs = [
            self.keras.Input([rows], dtype="int64", name="ids"),
            self.keras.Input([rows, 3], name="values"),
            self.keras.Input([4, 2], name="matrix"),
        ]
        layer = _classes(self.keras)[0](problem.values, name="fed", **arguments)
        return (cls or self.keras.Model)(inputs, layer(inputs))

    def fit(self, problem, optimizer, callbacks=(), model=None, epochs=1, **compiling):
        """Trains with `compile` and `fit` and returns (trace, model).

        Args:
          problem: the `Problem`.
          optimizer: the Keras optimizer.
          callbacks: Keras callbacks.
          model: what `fed_model` returned.
          epochs: how often to go through the problem's gradients.
          **compiling: arguments of `compile`.
        """
        model = self.fed_model(problem) if model is None else model
        model.compile(optimizer, keras_models.the_output, **compiling)
        recorder = self.recorder()
        keras_models.fit_data(model, problem, epochs, [recorder] + list(callbacks))
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        slots = keras_models.slots_of(inner, model.get_layer("fed").variables_by_name)
        slots = {key: slot.numpy() for key, slot in slots.items()}
        return running.Trace(recorder.steps, slots), model

    def run(self, optimizer, way, problem, **options):
        """Trains in a loop or with fit, in a function or eagerly, and returns the trace."""
        if way.startswith("fit"):
            return self.fit(problem, optimizer, run_eagerly=way == "fit eagerly", **options)[0]
        return keras_models.loop(problem, optimizer, way, **options)[0]


@functools.lru_cache()
def _classes(keras):
    """Returns the layer and the callback, as classes of one Keras."""

    class FedLoss(keras.layers.Layer):
        """Holds a problem's variables; its output's gradients are its inputs."""

        def __init__(self, values, constraint=None, **kwargs):
            super().__init__(dtype="float32", **kwargs)  # 1.15 would take that of the first input
            self.values = values
            self.constraint = constraint
            self.runs = 0  # how often it was traced, or run eagerly

        def build(self, shapes):
            for name, value in self.values.items():
                constant = keras.initializers.Constant(value)
                variable = self.add_weight(
                    name=name,
                    shape=value.shape,
                    initializer=constant,
                    constraint=self.constraint,
                )
                setattr(self, name, variable)
            self.built = True

        def call(self, inputs):
            self.runs += 1
            ids, values, matrix = (batch[0] for batch in inputs)
            gradients = {"table": (values, ids), "matrix": matrix}
            return tf.reshape(keras_models.loss(gradients, self.variables_by_name), [1, 1])

        @property
        def variables_by_name(self):
            return {name: getattr(self, name) for name in self.values}

    class Recorder(keras.callbacks.Callback):
        """Notes the weights after each batch of `fit`."""

        def __init__(self):
            super().__init__()
            self.steps = []

        def on_train_batch_end(self, batch, logs=None):
            variables = self.model.get_layer("fed").variables_by_name
            self.steps.append({name: variable.numpy() for name, variable in variables.items()})

    return FedLoss, Recorder


def of_each(arguments, optimizer_v2=(), keras3=()):
    """Parametrizes a test by `api` and by what differs between the APIs.

    Args:
      arguments: names of the test's other arguments, separated by commas.
      optimizer_v2: the values with this API, as for `pytest.mark.parametrize`.
      keras3: those with the other.
    """
    cells = []
    for api, every in zip(EVERY, (optimizer_v2, keras3)):
        for each in every:
            is_marked = hasattr(each, "marks")
            marks = each.marks if is_marked else ()
            each = each.values if is_marked else each
            values = each if isinstance(each, tuple) else (each,)
            name = "-".join(getattr(value, "__name__", str(value)) for value in values)
            marks = [*api.marks, *marks]
            cells.append(pytest.param(*api.values, *values, marks=marks, id=api.id + "-" + name))
    return pytest.mark.parametrize("api, " + arguments, cells)


OPTIMIZER_V2, KERAS_3 = KerasApi("optimizer_v2"), KerasApi("keras3")
# Cells that are marked so are left out where there is no Keras 3.
EVERY = [
    pytest.param(OPTIMIZER_V2, id="optimizer_v2"),
    pytest.param(KERAS_3, id="keras3", marks=pytest.mark.keras3),
]
APIS = {api.name: api for api in (OPTIMIZER_V2, KERAS_3)}


@pytest.fixture(params=EVERY)
def api(request):
    """The Keras API that a test runs with; a conftest.py imports it."""
    return request.param
