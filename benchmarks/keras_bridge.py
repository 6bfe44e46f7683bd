"""Compares the speed of bridged optimizers with Keras' own optimizers and with v1 optimizers.

A bridged optimizer is a Keras optimizer that `to_keras` made from a v1 optimizer. A contestant is
one optimizer on one workload. All contestants on a workload do the same work, on separate
variables. There are two kinds of steps:

* "step" applies gradients that are already in memory, as in `workloads.py`. It runs in a
  `tf.function` if TensorFlow executes eagerly, otherwise in a Session. A bridged optimizer is
  compared with the original v1 optimizer and, if `DENSE` or `SPARSE` says so, with one of Keras'
  own optimizers. On workload B4, an optimizer's step time is compared with its step time on
  workload B3.
* "fit" is one batch of `Model.fit`, timed by a callback. It is measured for dense gradients only.
  The model sums many small matrix products, so the optimizer takes a large share of the step. A
  bridged optimizer is compared with one of Keras' own optimizers.

Both kinds of steps are run with Keras 2 and, if `tf.keras` is Keras 3, also with Keras 3.
"""

import contextlib
import functools
import gc
import time
from typing import Dict, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

import legacy_opt
from benchmarks.workloads import Workload, gradient_of
from legacy_opt import versions
from legacy_opt.compat import to_keras

v1 = tf.compat.v1

LEARNING_RATE = 0.01
APIS = {2: "optimizer_v2", 3: "keras3"}  # Keras' generation -> argument `api` of to_keras
_MODEL_ROWS = 8  # the batch size of `Fit`

WORKLOADS = [
    Workload("B1", "the bridge with 10 variables of 64x64", (64, 64), variables=10),
    Workload("B2", "the bridge with 200 variables of 64x64", (64, 64), variables=200),
    Workload("B3", "the bridge with 4,096 ids of 1 M x 16", (10**6, 16), ids=4096),
    Workload(
        "B4", "the bridge with 4,096 ids of 10 M x 16", (10**7, 16), ids=4096, grown_from="B3"
    ),
]


class Way(NamedTuple):
    """The kind of a step, and the generation of Keras that it runs with.

    Attributes:
      kind: "step" or "fit".
      generation: Keras' generation, 2 or 3.
    """

    kind: str
    generation: int

    def __str__(self):
        """Returns the text of the column "way" in the report."""
        step = "tf.function" if tf.executing_eagerly() else "Session"
        return f"{'fit' if self.kind == 'fit' else step}, Keras {self.generation}"


class Comparison(NamedTuple):
    """A comparison of two optimizers, with a goal.

    Attributes:
      optimizer: the name of the measured optimizer, a key of `makers`.
      other: the name of the optimizer to compare with, a key of `makers`.
      goals: a dict from Keras' generation to the goal: the largest accepted ratio of the step time
        of `optimizer` to the step time of `other`. If the goal is None, the ratio is reported
        without a goal. If a generation is not in the dict, the two optimizers are not compared with
        this generation.
      kinds: the kinds of steps in which the two optimizers are compared, as in `Way.kind`.
    """

    optimizer: str
    other: str
    goals: Dict[int, Optional[float]]
    kinds: Tuple[str, ...] = ("step",)


def _momentum(step):
    return v1.train.MomentumOptimizer(LEARNING_RATE, 0.9)


def _adam(step):
    return v1.train.AdamOptimizer(LEARNING_RATE)


def _adagrad(step):
    return v1.train.AdagradOptimizer(LEARNING_RATE)


def _adagrad_decay(step):
    return legacy_opt.AdagradDecayOptimizer(LEARNING_RATE, step, accumulator_decay_step=10**9)


def _adamw(step):
    return legacy_opt.AdamWOptimizer(0.01, LEARNING_RATE)


def _lazy_adam(step):
    return legacy_opt.LazyAdamOptimizer(LEARNING_RATE)


_V1 = {
    "Momentum": _momentum,
    "Adam": _adam,
    "Adagrad": _adagrad,
    "AdagradDecay": _adagrad_decay,
}
_NATIVE = {"Adam": _adam, "AdamW": _adamw, "LazyAdam": _lazy_adam}  # with native kernels


def makers(generation):
    """Returns a dict from each optimizer's name to a function that creates the optimizer.

    Each function takes the global step variable, which only v1 AdagradDecay uses.

    Args:
      generation: the generation of Keras for bridged optimizers and for Keras' own optimizers.
    """
    home = keras_of(generation).optimizers
    if generation == 2:
        home = getattr(home, "legacy", home)  # the optimizers derived from OptimizerV2

    def bridged(make):
        return lambda step: to_keras(make(None), api=APIS[generation])

    def own(name, **arguments):
        return lambda step: getattr(home, name)(LEARNING_RATE, **arguments)

    found = {
        "Keras SGD": own("SGD", momentum=0.9),
        "Keras Adam": own("Adam", epsilon=1e-8),
        "Keras Adam again": own("Adam", epsilon=1e-8),
        "Keras Adagrad": own("Adagrad", epsilon=0.0),
    }
    for name, make in _V1.items():
        found["v1 " + name] = make
        found["bridged " + name] = bridged(make)
    for name, make in _NATIVE.items():
        accelerated = functools.partial(_accelerated, make)
        found[f"bridged {name}, native"] = bridged(accelerated)
    return found


def _accelerated(make, step):
    return legacy_opt.native.accelerate(make(step), require=True)


# Values of `Comparison.goals` for comparisons with Keras' own optimizers (_OWN), with v1 optimizers
# (_PLAIN), and without goals (_INFORMATION).
_OWN = {2: 1.10, 3: 1.00}
_PLAIN = {2: 1.10, 3: 1.10}
_INFORMATION = {2: None, 3: None}

DENSE = [
    # The same optimizer under two names: the ratio shows the noise of the measurement.
    Comparison("Keras Adam again", "Keras Adam", _INFORMATION, ("step", "fit")),
    Comparison("bridged Momentum", "Keras SGD", _OWN, ("step", "fit")),
    Comparison("bridged Momentum", "v1 Momentum", _PLAIN),
    Comparison("bridged Adam", "Keras Adam", _OWN, ("step", "fit")),
    Comparison("bridged Adam", "v1 Adam", _PLAIN),
    Comparison("bridged AdagradDecay", "v1 AdagradDecay", {2: None, 3: 1.10}),
]
NATIVE = [
    Comparison(f"bridged {name}, native", "Keras Adam", {2: None, 3: 0.45}, ("fit",))
    for name in _NATIVE
]
SPARSE = [
    Comparison("bridged Adagrad", "Keras Adagrad", {3: 1.00}),
    Comparison("bridged Adagrad", "v1 Adagrad", {2: None, 3: 1.10}),
    Comparison("bridged AdagradDecay", "v1 AdagradDecay", {2: None, 3: 1.10}),
]
#: The goals for the ratio of an optimizer's step time on B4 to its step time on B3.
GROWTH = {"v1 Adagrad": None, "bridged Adagrad": 1.15, "bridged AdagradDecay": 1.15}


def keras_of(generation):
    """Returns the package of Keras 2 or of Keras 3."""
    return versions.keras_3() if generation == 3 else versions.keras_2()


def ways(workload):
    """Returns a list of the `Way`s in which a workload is run."""
    generations = range(2, versions.keras_facts()["generation"] + 1)
    kinds = ("step",) if workload.ids else ("step", "fit")
    return [Way(kind, generation) for generation in generations for kind in kinds]


def comparisons(workload, way, has_kernels=False):
    """Returns a list of the planned comparisons, which are triples as in `run.comparisons`.

    Args:
      workload: the workload.
      way: the `Way`.
      has_kernels: whether native kernels can run.
    """
    name = workload.name
    if workload.grown_from:
        return [((name, key), (workload.grown_from, key), goal) for key, goal in GROWTH.items()]
    return [
        ((name, found.optimizer), (name, found.other), found.goals[way.generation])
        for found in (SPARSE if workload.ids else DENSE + NATIVE * has_kernels)
        if way.kind in found.kinds and way.generation in found.goals
    ]


def contestant(workload, way, name):
    """Returns a contestant, a `Step` or `Fit`, with the optimizer of this name."""
    make = makers(way.generation)[name]
    if way.kind == "fit":
        return Fit(workload, make, keras_of(way.generation))
    return Step(workload, make)


class _Context:
    """The graph and Session of a contestant; with eager execution, `session` is None."""

    def __init__(self):
        self.session = None if tf.executing_eagerly() else v1.Session(graph=tf.Graph())

    @contextlib.contextmanager
    def entered(self):
        with contextlib.ExitStack() as stack:
            if self.session is not None:
                stack.enter_context(self.session.graph.as_default())
                stack.enter_context(self.session.as_default())  # Keras uses the default session
            v1.set_random_seed(1)
            yield

    def value(self, variable):
        """Returns the value of a variable of Keras or TensorFlow as an array."""
        return variable.numpy() if self.session is None else self.session.run(variable)

    def leave(self):
        if self.session is not None:
            self.session.close()
        gc.collect()  # frees large variables in reference cycles of Keras' objects


class Step:
    """Applies an optimizer to gradients that stay in memory.

    Args:
      workload: the `Workload`.
      make: a function that takes the global step variable and returns a v1 or Keras optimizer.

    Attributes:
      step: a callable that runs one step.
      variables: the trained variables.
      iterations: the variable that counts the steps.
    """

    def __init__(self, workload, make):
        self._context = _Context()
        with self._context.entered():
            self.variables = [
                tf.compat.v2.Variable(lambda: tf.zeros(workload.shape), name=f"variable_{i}")
                for i in range(workload.variables)
            ]
            count = tf.compat.v2.Variable(tf.constant(0, tf.int64), name="step", trainable=False)
            optimizer = make(count)
            is_v1 = isinstance(optimizer, v1.train.Optimizer)
            arguments = {"global_step": count} if is_v1 else {}
            self.iterations = count if is_v1 else optimizer.iterations
            read_gradient = gradient_of(workload)

            def train():
                gradient = read_gradient(self.iterations)
                pairs = [(gradient, variable) for variable in self.variables]
                return optimizer.apply_gradients(pairs, **arguments)

            if self._context.session is None:

                @tf.function
                def step():
                    train()  # no `return`: a tf.function cannot return operations

                self.step = step
            else:
                train_op = train()
                self._context.session.run(v1.global_variables_initializer())
                self.step = self._context.session.make_callable(train_op)

    def value(self, variable):
        """Returns the value of a variable as an array."""
        return self._context.value(variable)

    def close(self):
        """Frees the variables."""
        self.step = self.variables = self.iterations = None
        self._context.leave()


class Fit:
    """Trains a model of small variables with `Model.fit`.

    Args:
      workload: the `Workload`.
      make: a function that is called with None and returns a new Keras optimizer.
      keras: the Keras package.

    Attributes:
      step: this object; `timing.times` calls its method `times`.
      variables: the trained variables.
      iterations: the variable that counts the steps.
    """

    def __init__(self, workload, make, keras):
        self.step = self
        self._context = _Context()
        with self._context.entered():
            inputs, outputs = workload.shape
            batch = keras.Input([inputs])
            self._model = keras.Model(batch, _sum_of_products(keras, workload)(batch))
            optimizer = make(None)
            self._model.compile(optimizer, "mse")
            self.variables, self.iterations = self._model.weights, optimizer.iterations
        self._watch = watch(keras)
        random = np.random.RandomState(1)
        self._x = (0.1 * random.randn(_MODEL_ROWS, inputs)).astype(np.float32)
        self._y = random.randn(_MODEL_ROWS, outputs).astype(np.float32)

    def times(self, count):
        """Runs `fit` on `count` + 1 batches.

        Returns:
          A list of durations in seconds, one for each batch except the first.
        """
        x, y = (np.tile(batch, (count + 1, 1)) for batch in (self._x, self._y))
        del self._watch.times[:]
        with self._context.entered():
            self._model.fit(
                x, y, _MODEL_ROWS, epochs=1, verbose=0, shuffle=False, callbacks=[self._watch]
            )
        return self._watch.times[1:]

    def value(self, variable):
        """Returns the value of a variable as an array."""
        return self._context.value(variable)

    def close(self):
        """Frees the variables."""
        self.step = self._model = self.variables = self.iterations = self._watch = None
        self._context.leave()


def _sum_of_products(keras, workload):
    class SumOfProducts(keras.layers.Layer):
        def build(self, shape):
            self.kernels = [
                self.add_weight(name=f"kernel_{i}", shape=workload.shape, initializer="zeros")
                for i in range(workload.variables)
            ]
            super().build(shape)

        def call(self, inputs):
            return tf.add_n([tf.matmul(inputs, kernel) for kernel in self.kernels])

    return SumOfProducts()


def watch(keras):
    class Watch(keras.callbacks.Callback):
        """Records the time of each batch."""

        times = []

        def on_train_batch_begin(self, batch, logs=None):
            self._start = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            self.times.append(time.perf_counter() - self._start)

    return Watch()
