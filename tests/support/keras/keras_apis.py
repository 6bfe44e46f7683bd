"""One interface to the two Keras APIs (Keras 2's OptimizerV2 and Keras 3) for tests of the bridges.

The models take the gradients of a `keras_models.problem` as their inputs.
"""

import functools

import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras
from tests.support import installed, running
from tests.support.keras import keras_models


def keras_2():
    """Returns Keras 2; skips the test, or the module of tests, if it is not installed."""
    if not installed.has_keras_2():
        pytest.skip("Keras 2 is not installed", allow_module_level=True)
    return versions.keras_2()


class KerasApi:
    """A Keras API; `name` is the value of `to_keras`'s argument `api`.

    Keras is imported lazily, so that tests can refer to `KERAS_3` where Keras 3 is not installed.
    """

    def __init__(self, name):
        self.name = name

    @property
    def keras(self):
        """The Keras module."""
        return keras_2() if self.name == "optimizer_v2" else versions.keras_3()

    @property
    def optimizers(self):
        """The module with Keras' own optimizers of this API."""
        home = self.keras.optimizers
        is_this_api = self.name == "keras3" or issubclass(home.SGD, versions.optimizer_v2())
        # From TensorFlow 2.11 on, the subclasses of OptimizerV2 are in the module `legacy`. Up to
        # TensorFlow 2.10, they are in `tf.keras.optimizers` itself. TensorFlow 2.10 has a module
        # `legacy`, too, but with different classes.
        return home if is_this_api else home.legacy

    def bridged(self, optimizer, **arguments):
        """Converts a v1 optimizer with `to_keras`; a string is a key of `V1_OPTIMIZERS`."""
        if isinstance(optimizer, str):
            optimizer = keras_models.make(optimizer)
        assert self.keras  # skips tests of a Keras that is not installed
        return to_keras(optimizer, api=self.name, **arguments)

    def variable(self, value, **arguments):
        """Creates a variable of the class that layers of this Keras API use."""
        make = tf.compat.v2.Variable if self.name == "optimizer_v2" else self.keras.Variable
        return make(value, **arguments)

    def number(self, variable):
        """Returns the value of a hyperparameter; in Keras 2 it may be a float or a variable."""
        return float(variable.numpy() if hasattr(variable, "numpy") else variable)

    def schedule(self, optimizer):
        """Returns the LearningRateSchedule of an optimizer."""
        return optimizer.learning_rate if self.name == "optimizer_v2" else optimizer._learning_rate

    def recorder(self):
        """Returns a callback that appends the weights to its `steps` after each batch of `fit`."""
        return _classes(self.keras)[1]()

    def fed_model(self, problem, cls=None, **arguments):
        """Returns a model that trains with the problem's gradients; the batch size must be 1.

        Args:
          problem: the `Problem`.
          cls: the class of the model; None for keras.Model.
          **arguments: arguments of the layer.
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
          model: the result of `fed_model`; None to create one.
          epochs: how often to train with all of the problem's gradients.
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
        """Trains with `fit` or in a custom loop, compiled or eagerly; returns the trace."""
        if way.startswith("fit"):
            return self.fit(problem, optimizer, run_eagerly=way == "fit eagerly", **options)[0]
        return keras_models.loop(problem, optimizer, way, **options)[0]


@functools.lru_cache()
def _classes(keras):
    """Returns the classes of the layer and the callback for one Keras module."""

    class FedLoss(keras.layers.Layer):
        """Outputs a loss; its gradients with respect to the variables are the layer's inputs."""

        def __init__(self, values, constraint=None, **kwargs):
            # On TensorFlow 1.15 the default dtype would be int64, the dtype of the first input.
            super().__init__(dtype="float32", **kwargs)
            self.values = values
            self.constraint = constraint
            self.runs = 0  # the number of calls of `call`, one for each trace or eager step

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
        """Records the weights after each batch of `fit`."""

        def __init__(self):
            super().__init__()
            self.steps = []

        def on_train_batch_end(self, batch, logs=None):
            variables = self.model.get_layer("fed").variables_by_name
            self.steps.append({name: variable.numpy() for name, variable in variables.items()})

    return FedLoss, Recorder


def of_each(arguments, optimizer_v2=(), keras3=()):
    """Parametrizes a test by `api`, with separate values for each API.

    Args:
      arguments: the names of the test's arguments except `api`, separated by commas.
      optimizer_v2: the values for Keras 2, in the form that `pytest.mark.parametrize` takes.
      keras3: the values for Keras 3.
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


def in_turn(argument, values):
    """Parametrizes a test by `api` and one more argument.

    In the daily run, the values alternate between the APIs. With --full, each API has all values.
    """
    every = [value if hasattr(value, "marks") else pytest.param(value) for value in values]
    cells = (
        [
            each if number % 2 == turn else each._replace(marks=[*each.marks, pytest.mark.full])
            for number, each in enumerate(every)
        ]
        for turn in range(2)
    )
    return of_each(argument, *cells)


OPTIMIZER_V2, KERAS_3 = KerasApi("optimizer_v2"), KerasApi("keras3")
# Tests marked keras3 are left out where Keras 3 is not installed.
EVERY = [
    pytest.param(OPTIMIZER_V2, id="optimizer_v2"),
    pytest.param(KERAS_3, id="keras3", marks=pytest.mark.keras3),
]
APIS = {api.name: api for api in (OPTIMIZER_V2, KERAS_3)}


@pytest.fixture(params=EVERY)
def api(request):
    """Returns the `KerasApi` of a test. A conftest.py imports this fixture."""
    return request.param


def by_callback(api, name, load, **options):
    """Returns (save, load); `save` calls ModelCheckpoint as `fit` would do in one epoch."""

    def save(model, home):
        callback = api.keras.callbacks.ModelCheckpoint(str(home / name), verbose=0, **options)
        callback.set_model(model)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        callback.on_epoch_end(0, {})

    return save, load
