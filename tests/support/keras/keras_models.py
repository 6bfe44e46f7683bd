"""Trains with given gradients: with a Keras 2 or 3 optimizer, or in a Session with a v1 optimizer.

`problem` creates the variables' values and gradients. `loop` and `graph` train with a Keras
optimizer, `session` with a v1 optimizer. `keras_apis` has models for `fit`.
"""

import inspect

import numpy as np
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, versions
from legacy_opt.compat.in_keras.side_by_side import training_function
from tests.support import problems, running

v1 = tf.compat.v1

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


def problem(steps=12, seed=3, rows=5):
    """Returns a problem with a matrix, and an embedding table with repeated ids.

    Args:
      steps: the number of steps.
      seed: the seed of the random numbers.
      rows: the number of ids in each step.
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


def session(name, problem, **arguments):
    """Trains with the v1 optimizer of this name in a Session; returns the `Trace`."""
    return running.session(problem, lambda step: make(name, step), True, **arguments)


def variables_of(problem):
    """Creates the problem's variables; returns them by name."""
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
    """Returns a scalar; its gradients with respect to `variables` are `gradients`, bit for bit."""
    total = 0.0
    for gradient, variable in pairs(gradients, variables):
        if isinstance(gradient, tf.IndexedSlices):
            read = tf.gather(variable, gradient.indices)
            total += tf.reduce_sum(read * gradient.values)
        else:
            total += tf.reduce_sum(variable * gradient)
    return total


def loop(problem, optimizer, way="function", between=None, apply=None, variables=None):
    """Trains in a custom loop.

    Args:
      problem: the `Problem`.
      optimizer: the Keras optimizer; None if `apply` does not need it.
      way: "function" or "eager".
      between: called with (variables, step number) before each step.
      apply: called with (optimizer, gradients, variables) instead of `apply_gradients`.
      variables: a dict of variables; None to create the problem's variables.

    Returns:
      The `Trace`, and how often `tf.function` retraced after the first step. For "eager", this
      number has no meaning.
    """
    variables = variables_of(problem) if variables is None else variables
    traces = []

    def train(gradients):
        traces.append(gradients)
        if apply is not None:
            apply(optimizer, gradients, variables)
        else:
            optimizer.apply_gradients(pairs(gradients, variables))

    if way == "function":
        train = training_function(train, [running.signature(problem)])
    steps = []
    first = None
    for number, gradients in enumerate(problem.gradients):
        if between is not None:
            between(variables, number)
        train(constants(gradients))
        first = first or len(traces)
        steps.append({name: variable.numpy() for name, variable in variables.items()})
    slots = {key: slot.numpy() for key, slot in slots_of(optimizer, variables).items()}
    return running.Trace(steps, slots), len(traces) - first


def rates(problem, rate_of):
    """Computes gradient descent in NumPy with the learning rate `rate_of(step)`.

    Returns:
      The values of the variables after each step.
    """
    now, steps = dict(problem.values), []
    for number, gradients in enumerate(problem.gradients):
        rate = np.float32(rate_of(number))
        now = {name: now[name] - rate * problems.dense(gradients[name], now[name]) for name in now}
        steps.append(now)
    return steps


def slots_of(optimizer, variables):
    """Returns an optimizer's slot variables by (variable name, slot name)."""
    return {
        (name, slot): versions.tf_variable(optimizer.get_slot(variable, slot))
        for slot in getattr(optimizer, "get_slot_names", list)()
        for name, variable in variables.items()
    }


def constants(gradients):
    return {
        name: tuple(map(tf.constant, value)) if isinstance(value, tuple) else tf.constant(value)
        for name, value in gradients.items()
    }


def graph(problem, make_optimizer, build=None, between=None):
    """Trains with a Keras optimizer in a graph-mode Session.

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


def fed_data(problem):
    """Returns the problem's gradients as x, and zeros as y, for `fit`."""
    x = [
        np.stack([step["table"].ids for step in problem.gradients]),
        np.stack([step["table"].values for step in problem.gradients]),
        np.stack([step["matrix"] for step in problem.gradients]),
    ]
    return x, np.zeros([problem.steps, 1], "f")


def fit_data(model, problem, epochs, callbacks):
    """Calls `fit` with the problem's gradients; each batch has the gradients of one step."""
    x, y = fed_data(problem)
    options = {"batch_size": 1, "shuffle": False, "verbose": 0}
    model.fit(x, y, epochs=epochs, callbacks=callbacks, **options)


def the_output(_, output):
    """Returns the model's output as the loss."""
    return output
