"""Keras models whose gradients are their inputs: the optimizer alone decides what happens.

`problem` makes the values and gradients; the functions here run them through a Keras optimizer and
return a `running.Trace`, as `running.session` does for a v1 optimizer.
"""

import inspect

import numpy as np
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, versions
from legacy_opt.compat import to_keras
from tests.support import problems, running

v1 = tf.compat.v1
keras = versions.keras_2()
Base = versions.optimizer_v2()

V1_OPTIMIZERS = {
    "Adadelta": lambda **kw: v1.train.AdadeltaOptimizer(0.8, 0.9, **kw),
    "Adagrad": lambda **kw: v1.train.AdagradOptimizer(0.3, **kw),
    "AdagradDA": lambda step=None: v1.train.AdagradDAOptimizer(
        0.3, step, l1_regularization_strength=0.01, l2_regularization_strength=0.02
    ),
    "AdagradDecay": lambda step=None: AdagradDecayOptimizer(0.3, step, 0.25, 3, 0.7),
    "Adam": lambda **kw: v1.train.AdamOptimizer(0.1, **kw),
    "Ftrl": lambda **kw: v1.train.FtrlOptimizer(
        0.3, l1_regularization_strength=0.01, l2_regularization_strength=0.02, **kw
    ),
    "GradientDescent": lambda **kw: v1.train.GradientDescentOptimizer(0.1, **kw),
    "Momentum": lambda **kw: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True, **kw),
    "ProximalAdagrad": lambda **kw: v1.train.ProximalAdagradOptimizer(
        0.3, l1_regularization_strength=0.01, l2_regularization_strength=0.02, **kw
    ),
    "ProximalGradientDescent": lambda **kw: v1.train.ProximalGradientDescentOptimizer(
        0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02, **kw
    ),
    "RMSProp": lambda **kw: v1.train.RMSPropOptimizer(0.05, momentum=0.5, centered=True, **kw),
}


def make(name, step=None):
    """Returns a new v1 optimizer by its name in `V1_OPTIMIZERS`."""
    maker = V1_OPTIMIZERS[name]
    return maker(step=step) if "step" in inspect.signature(maker).parameters else maker()


def bridged(optimizer, **arguments):
    """Returns the OptimizerV2 for a v1 optimizer, or for the name of one."""
    if isinstance(optimizer, str):
        optimizer = make(optimizer)
    return to_keras(optimizer, api="optimizer_v2", **arguments)


def problem(steps=12, seed=3, rows=5):
    """Returns a problem with a matrix and an embedding table whose ids repeat.

    Args:
      steps: how many gradients.
      seed: for the random numbers.
      rows: how many ids each step has.
    """
    random = np.random.RandomState(seed)
    values = {"table": random.randn(9, 3).astype("f"), "matrix": random.randn(4, 2).astype("f")}
    gradients = []
    for _ in range(steps):
        ids = random.randint(0, 9, size=rows).astype(np.int64)
        ids[0] = ids[-1]
        table = problems.Rows(random.randn(rows, 3).astype("f"), ids)
        gradients.append({"table": table, "matrix": random.randn(4, 2).astype("f")})
    return problems.Problem(values, gradients, ("table",), "float32")


def variables_of(problem):
    """Returns the problem's variables by name."""
    return {name: tf.compat.v2.Variable(value, name=name) for name, value in problem.values.items()}


def pairs(gradients, variables):
    """Returns one step's gradients, paired with their variables."""
    result = []
    for name, variable in variables.items():
        gradient = gradients[name]
        if isinstance(gradient, (problems.Rows, tuple)):
            values, ids = gradient
            gradient = tf.IndexedSlices(
                tf.convert_to_tensor(values), tf.convert_to_tensor(ids), variable.shape
            )
        else:
            gradient = tf.convert_to_tensor(gradient)
        result.append((gradient, variable))
    return result


def loss(gradients, variables):
    """Returns a scalar whose gradients are `gradients`, bit for bit."""
    total = 0.0
    for gradient, variable in pairs(gradients, variables):
        if isinstance(gradient, tf.IndexedSlices):
            read = tf.gather(variable, gradient.indices)
            total += tf.reduce_sum(read * gradient.values)
        else:
            total += tf.reduce_sum(variable * gradient)
    return total


def loop(problem, optimizer, way="function", between=None, apply=None):
    """Trains in a custom loop.

    Args:
      problem: the `Problem`.
      optimizer: the Keras optimizer; None if `apply` knows which.
      way: "function" or "eager".
      between: called with (variables, step number) before each step.
      apply: called with (optimizer, gradients, variables) in place of `apply_gradients`.

    Returns:
      The `Trace`, and how often the step was traced again after the first.
    """
    variables = variables_of(problem)
    traces = []

    def train(gradients):
        traces.append(gradients)
        if apply is not None:
            apply(optimizer, gradients, variables)
        else:
            optimizer.apply_gradients(pairs(gradients, variables))

    if way == "function":
        train = tf.function(train, input_signature=[running.signature(problem)])
    steps = []
    first = None
    for number, gradients in enumerate(problem.gradients):
        if between is not None:
            between(variables, number)
        train(_constants(gradients))
        first = first or len(traces)
        steps.append({name: variable.numpy() for name, variable in variables.items()})
    slots = {key: slot.numpy() for key, slot in slots_of(optimizer, variables).items()}
    return running.Trace(steps, slots), len(traces) - first


def slots_of(optimizer, variables):
    """Returns the slots of an optimizer, as keys of a `Trace`."""
    return {
        (name, slot): versions.tf_variable(optimizer.get_slot(variable, slot))
        for slot in (optimizer.get_slot_names() if optimizer is not None else [])
        for name, variable in variables.items()
    }


def _constants(gradients):
    return {
        name: tuple(map(tf.constant, value)) if isinstance(value, tuple) else tf.constant(value)
        for name, value in gradients.items()
    }


def graph(problem, make_optimizer, build=None, between=None):
    """Trains in graph mode, with a Keras optimizer in a Session.

    Args:
      problem: the `Problem`.
      make_optimizer: called in the graph, returns the Keras optimizer.
      build: called with (optimizer, gradients, variables), returns the op to run;
        None for `apply_gradients`.
      between: called with (session, optimizer, step number) before each step.
    """
    with tf.Graph().as_default():
        variables = variables_of(problem)
        placeholders = running._placeholders(problem)
        optimizer = make_optimizer()
        if build is not None:
            train_op = build(optimizer, placeholders, variables)
        else:
            train_op = optimizer.apply_gradients(pairs(placeholders, variables))
        with v1.Session() as sess:
            sess.run(
                [v1.global_variables_initializer()] + [w.initializer for w in optimizer.weights]
            )
            steps = []
            for number, gradients in enumerate(problem.gradients):
                if between is not None:
                    between(sess, optimizer, number)
                sess.run(train_op, running._feed(placeholders, gradients))
                steps.append(sess.run(variables))
            slots = slots_of(optimizer, variables)
            return running.Trace(steps, sess.run(slots) if slots else {})


class FedLoss(keras.layers.Layer):
    """Holds a problem's variables; its output's gradients are its inputs."""

    def __init__(self, values, **kwargs):
        super().__init__(dtype="float32", **kwargs)  # 1.15 would take that of the first input
        self.values = values
        self.traces = 0

    def build(self, shape):
        for name, value in self.values.items():
            constant = v1.constant_initializer(value)
            setattr(self, name, self.add_weight(name, value.shape, initializer=constant))
        super().build(shape)

    def call(self, inputs):
        self.traces += 1
        ids, values, matrix = (batch[0] for batch in inputs)
        gradients = {"table": (values, ids), "matrix": matrix}
        total = loss(gradients, {"table": self.table, "matrix": self.matrix})
        return tf.reshape(total, [1, 1])


def fed_model(problem):
    """Returns a model, to be fitted with batches of one, that the problem's gradients train."""
    rows = len(problem.gradients[0]["table"].ids)
    inputs = [
        keras.Input([rows], dtype="int64", name="ids"),
        keras.Input([rows, 3], name="values"),
        keras.Input([4, 2], name="matrix"),
    ]
    return keras.Model(inputs, FedLoss(problem.values, name="fed")(inputs))


def fed_data(problem):
    """Returns x and y for `fit`."""
    x = [
        np.stack([step["table"].ids for step in problem.gradients]),
        np.stack([step["table"].values for step in problem.gradients]),
        np.stack([step["matrix"] for step in problem.gradients]),
    ]
    return x, np.zeros([problem.steps, 1], "f")


def fit_data(model, problem, epochs, callbacks):
    """Fits a compiled model of either Keras with the problem's gradients, one after the other."""
    x, y = fed_data(problem)
    options = {"batch_size": 1, "shuffle": False, "verbose": 0}
    model.fit(x, y, epochs=epochs, callbacks=callbacks, **options)


def the_output(_, output):
    """A loss that is the output itself."""
    return output


class Recorder(keras.callbacks.Callback):
    """Notes the weights after each batch of `fit`."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_batch_end(self, batch, logs=None):
        layer = self.model.get_layer("fed")
        self.steps.append({name: getattr(layer, name).numpy() for name in ("table", "matrix")})


def fit(problem, optimizer, epochs=1, callbacks=(), **compiling):
    """Trains with `compile` and `fit` and returns (trace, model)."""
    model = fed_model(problem)
    model.compile(optimizer, the_output, **compiling)
    recorder = Recorder()
    fit_data(model, problem, epochs, [recorder] + list(callbacks))
    layer = model.get_layer("fed")
    variables = {"table": layer.table, "matrix": layer.matrix}
    slots = {key: slot.numpy() for key, slot in slots_of(optimizer, variables).items()}
    return running.Trace(recorder.steps, slots), model
