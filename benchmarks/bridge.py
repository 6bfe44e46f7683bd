"""The Keras bridge's steps against those of Keras' own optimizers and of plain v1 optimizers.

Everybody does the same work, each on variables of its own:

* "step" applies gradients that stay in memory, as in `workloads`: in a `tf.function` where
  TensorFlow executes eagerly, else in a graph and a Session. It compares with Keras' own optimizer
  and with the v1 optimizer that was bridged.
* "fit" is one batch of `Model.fit`, from the callbacks' view. The model sums many small matrix
  products, so that the optimizer has a large share of the step.
"""

import contextlib
import gc
import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import legacy_opt
from benchmarks.workloads import BATCHES, Workload, zipf_ids
from legacy_opt import versions
from legacy_opt.compat import to_keras

v1 = tf.compat.v1

LEARNING_RATE = 0.01
_MODEL_ROWS = 8  # in a batch

WORKLOADS = [
    Workload("B1", "the bridge with 10 variables of 64x64", (64, 64), variables=10),
    Workload("B2", "the bridge with 200 variables of 64x64", (64, 64), variables=200),
    Workload("B3", "the bridge with 4,096 ids of 1 M x 16", (10**6, 16), ids=4096),
    Workload(
        "B4", "the bridge with 4,096 ids of 10 M x 16", (10**7, 16), ids=4096, grown_from="B3"
    ),
]


class Comparison(NamedTuple):
    """An optimizer and another, held to a goal.

    Attributes:
      optimizer: the key in `MAKERS` of the one that is measured.
      other: the key of the one that it is compared with.
      goal: the largest ratio that counts as a hit; None measures for information.
      ways: the ways of running in which they are compared.
    """

    optimizer: str
    other: str
    goal: Any
    ways: tuple = ("step", "fit")


def _momentum(step):
    return v1.train.MomentumOptimizer(LEARNING_RATE, 0.9)


def _adam(step):
    return v1.train.AdamOptimizer(LEARNING_RATE)


def _adagrad(step):
    return v1.train.AdagradOptimizer(LEARNING_RATE)


def _adagrad_decay(step):
    return legacy_opt.AdagradDecayOptimizer(LEARNING_RATE, step, accumulator_decay_step=10**9)


def _bridged(make):
    return lambda step: to_keras(make(None), api="optimizer_v2")


def _keras(name, **arguments):
    def make(step):
        optimizers = versions.keras_2().optimizers
        home = getattr(optimizers, "legacy", optimizers)  # OptimizerV2's, where there are others
        return getattr(home, name)(LEARNING_RATE, **arguments)

    return make


#: Each is called with the global step variable, which only v1 optimizers need.
MAKERS = {
    "v1 Momentum": _momentum,
    "v1 Adam": _adam,
    "v1 Adagrad": _adagrad,
    "v1 AdagradDecay": _adagrad_decay,
    "Keras SGD": _keras("SGD", momentum=0.9),
    "Keras Adam": _keras("Adam", epsilon=1e-8),
    "Keras Adam again": _keras("Adam", epsilon=1e-8),
    "bridged Momentum": _bridged(_momentum),
    "bridged Adam": _bridged(_adam),
    "bridged Adagrad": _bridged(_adagrad),
    "bridged AdagradDecay": _bridged(_adagrad_decay),
}

DENSE = [
    # Twice the same: how far from 1 the ratios of this machine go by chance.
    Comparison("Keras Adam again", "Keras Adam", None),
    Comparison("bridged Momentum", "Keras SGD", 1.10),
    Comparison("bridged Momentum", "v1 Momentum", 1.10, ("step",)),
    Comparison("bridged Adam", "Keras Adam", 1.10),
    Comparison("bridged Adam", "v1 Adam", 1.10, ("step",)),
    Comparison("bridged AdagradDecay", "v1 AdagradDecay", None, ("step",)),
]
SPARSE = [
    Comparison("bridged Adagrad", "v1 Adagrad", None, ("step",)),
    Comparison("bridged AdagradDecay", "v1 AdagradDecay", None, ("step",)),
]
#: The largest ratio of an optimizer's step on B4 to its own step on B3.
GROWTH = {"v1 Adagrad": None, "bridged Adagrad": 1.15, "bridged AdagradDecay": 1.15}


def ways(workload):
    """Returns the ways in which a workload is run."""
    return ("step",) if workload.ids else ("step", "fit")


def comparisons(workload, way):
    """Tells what is compared, in the form of `run.comparisons`."""
    name = workload.name
    if workload.grown_from:
        return [((name, key), (workload.grown_from, key), goal) for key, goal in GROWTH.items()]
    found = SPARSE if workload.ids else DENSE
    return [((name, c.optimizer), (name, c.other), c.goal) for c in found if way in c.ways]


def name_of(way):
    """Returns what a way of running is on this TensorFlow, in the words of the report."""
    if way == "fit":
        return "fit"
    return "tf.function" if tf.executing_eagerly() else "Session"


class _Place:
    """Where a contestant lives: a graph and a Session of its own where nothing runs eagerly."""

    def __init__(self):
        self.session = None if tf.executing_eagerly() else v1.Session(graph=tf.Graph())

    @contextlib.contextmanager
    def entered(self):
        with contextlib.ExitStack() as stack:
            if self.session is not None:
                stack.enter_context(self.session.graph.as_default())
                stack.enter_context(self.session.as_default())  # Keras takes it as its own
            v1.set_random_seed(1)
            yield

    def leave(self):
        if self.session is not None:
            self.session.close()
        gc.collect()  # Keras' objects know each other, and tables are large


class Step:
    """Applies an optimizer to gradients that stay in memory.

    Args:
      workload: the `Workload`.
      make: called with the global step variable, returns an optimizer of v1 or Keras.

    Attributes:
      step: a callable that runs one step.
      variables: the trained variables.
      iterations: the variable that counts the steps.
    """

    def __init__(self, workload, make):
        self._place = _Place()
        with self._place.entered():
            self.variables = [
                tf.compat.v2.Variable(lambda: tf.zeros(workload.shape), name="variable_%d" % i)
                for i in range(workload.variables)
            ]
            count = tf.compat.v2.Variable(tf.constant(0, tf.int64), name="step", trainable=False)
            optimizer = make(count)
            is_v1 = isinstance(optimizer, v1.train.Optimizer)
            arguments = {"global_step": count} if is_v1 else {}
            self.iterations = count if is_v1 else optimizer.iterations
            read_gradient = _gradient(workload, self.iterations)

            def train():
                gradient = read_gradient()
                pairs = [(gradient, variable) for variable in self.variables]
                return optimizer.apply_gradients(pairs, **arguments)

            if self._place.session is None:

                @tf.function
                def step():
                    train()  # not returned: a function returns no operations

                self.step = step
            else:
                train_op = train()
                self._place.session.run(v1.global_variables_initializer())
                self.step = self._place.session.make_callable(train_op)

    def value(self, variable):
        """Returns the value of a variable as an array."""
        session = self._place.session
        return variable.numpy() if session is None else session.run(variable)

    def close(self):
        """Frees the variables."""
        self.step = self.variables = self.iterations = None
        self._place.leave()


def _gradient(workload, iterations):
    """Returns a function that reads the gradient that all variables share."""
    random = np.random.RandomState(1)

    def resident(shape):
        values = (0.1 * random.randn(*shape)).astype(np.float32)
        return tf.compat.v2.Variable(values, trainable=False)

    if not workload.ids:
        values = resident(workload.shape)
        return values.read_value
    values = resident((workload.ids,) + workload.shape[1:])
    batches = tf.compat.v2.Variable(zipf_ids(workload), trainable=False)

    def slices():
        ids = tf.gather(batches, iterations % BATCHES)
        return tf.IndexedSlices(values.read_value(), ids, tf.constant(workload.shape, tf.int64))

    return slices


class Fit:
    """Trains a model of small variables with `Model.fit`.

    Args:
      workload: the `Workload`.
      make: called with None, returns a new Keras optimizer.

    Attributes:
      step: what runs and times batches: this object.
      variables: the trained variables.
      iterations: the variable that counts the steps.
    """

    def __init__(self, workload, make):
        self.step = self
        self._place = _Place()
        with self._place.entered():
            inputs, outputs = workload.shape
            keras = versions.keras_2()
            self._model = keras.Sequential([_sum_of_products(keras, workload, (inputs,))])
            optimizer = make(None)
            self._model.compile(optimizer, "mse")
            self.variables, self.iterations = self._model.weights, optimizer.iterations
        self._watch = _watch(keras)
        random = np.random.RandomState(1)
        self._x = (0.1 * random.randn(_MODEL_ROWS, inputs)).astype(np.float32)
        self._y = random.randn(_MODEL_ROWS, outputs).astype(np.float32)

    def times(self, count):
        """Runs `fit` for `count` batches and one more before, which is not timed.

        Returns:
          A list of seconds per batch.
        """
        x, y = (np.tile(batch, (count + 1, 1)) for batch in (self._x, self._y))
        del self._watch.times[:]
        with self._place.entered():
            self._model.fit(
                x, y, _MODEL_ROWS, epochs=1, verbose=0, shuffle=False, callbacks=[self._watch]
            )
        return self._watch.times[1:]

    def value(self, variable):
        """Returns the value of a variable as an array."""
        with self._place.entered():
            return versions.keras_2().backend.get_value(variable)

    def close(self):
        """Frees the variables."""
        self.step = self._model = self.variables = self.iterations = self._watch = None
        self._place.leave()


def _sum_of_products(keras, workload, input_shape):
    class SumOfProducts(keras.layers.Layer):
        def build(self, shape):
            self.kernels = [
                self.add_weight(name="kernel_%d" % i, shape=workload.shape, initializer="zeros")
                for i in range(workload.variables)
            ]
            super().build(shape)

        def call(self, inputs):
            return tf.add_n([tf.matmul(inputs, kernel) for kernel in self.kernels])

    return SumOfProducts(input_shape=input_shape)


def _watch(keras):
    class Watch(keras.callbacks.Callback):
        """Takes the time of each batch."""

        times = []

        def on_train_batch_begin(self, batch, logs=None):
            self._start = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            self.times.append(time.perf_counter() - self._start)

    return Watch()


CONTESTANTS = {"step": Step, "fit": Fit}
