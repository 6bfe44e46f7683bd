"""Ways to train with a bridged optimizer (made by `to_keras` from a v1 optimizer).

The results of each way must equal a training with the v1 optimizer in a Session. Each training
returns a `running.Trace`. The trace's dict `slots` contains the final slots, and also the state
before each step except the first. In this state, slots have the keys ``(step, variable's name,
slot)``, and non-slot variables (such as powers of beta) have the keys ``(step, "shared", name)``.
"""

import contextlib
import functools
from typing import Callable, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras
from legacy_opt.compat.in_keras.side_by_side import training_function
from tests.support import ending_datasets, problems, running
from tests.support.keras import keras_apis

v1 = tf.compat.v1
DTYPES = ("float32", "float64", "float16", "bfloat16")
WITHOUT_REWRITING = v1.ConfigProto()
WITHOUT_REWRITING.graph_options.rewrite_options.disable_meta_optimizer = True


def bridged(make, api="optimizer_v2"):
    return to_keras(make(None), api=api)


def keras_variable(value, name, dtype):
    return versions.keras_3().Variable(value, name=name, dtype=dtype)


def _slots(optimizer, variables):
    slots = {}
    for slot in optimizer.get_slot_names():
        for name, variable in variables.items():
            with contextlib.suppress(KeyError):  # not every variable has each slot
                slots[name, slot] = versions.tf_variable(optimizer.get_slot(variable, slot))
    return {key: slot for key, slot in slots.items() if slot is not None}


def _state(optimizer, variables, step):
    """Returns a Keras optimizer's slots and non-slot variables, with the step in their keys."""
    shared = {("shared", name): variable for name, variable in optimizer.non_slots.items()}
    return _at(step, {**_slots(optimizer, variables), **shared})


def _state_in_v1(optimizer, variables, step):
    slots = _slots(optimizer, variables)
    slot_ids = {id(slot) for slot in slots.values()}
    shared = {
        ("shared", variable.op.name): variable
        for variable in optimizer.variables()
        if id(variable) not in slot_ids
    }
    return _at(step, {**slots, **shared})


def _at(step, state):
    return {(step,) + key: variable for key, variable in state.items()}


def _numpy(variables):
    return {key: variable.numpy() for key, variable in variables.items()}


# Training with given gradients.


def mixed(dtype, only=(), steps=24):
    """Returns a problem with dense gradients, and with sparse gradients that repeat ids."""
    dense = problems.make("dense", dtype, steps)
    rows = problems.make("duplicates", dtype, steps, seed=1)
    names = only or ("matrix", "vector", "table", "cube")

    def chosen(one, other):
        both = {**one, **other}
        return {name: both[name] for name in names}

    return problems.Problem(
        chosen(dense.values, rows.values),
        [chosen(*pair) for pair in zip(dense.gradients, rows.gradients)],
        tuple(name for name in rows.sparse if name in names),
        dtype,
    )


def session(problem, make, config=None):
    """Trains with the v1 optimizer in a graph-mode Session, the reference for the bridge."""
    state = {}

    def note(sess, optimizer, variables, number):
        if number:
            state.update(_fetch(sess, _state_in_v1(optimizer, variables, number)))

    trace = running.session(problem, make, use_resource=True, between=note, config=config)
    trace.slots.update(state)
    return trace


def _fetch(sess, variables):
    return sess.run(variables) if variables else {}


def session_without_rewriting(problem, make):
    return session(problem, make, WITHOUT_REWRITING)


def graph(problem, make, api="optimizer_v2"):
    """Trains with the Keras optimizer in a graph-mode Session."""
    with tf.Graph().as_default():
        variables = running._variables(problem, True)
        placeholders = running._placeholders(problem)
        optimizer = bridged(make, api)
        gradients = running._as_gradients(problem, placeholders, variables)
        train_op = optimizer.apply_gradients(gradients)
        with running.started() as sess:
            values, state = [], {}
            for number, step in enumerate(problem.gradients):
                if number:
                    state.update(_fetch(sess, _state(optimizer, variables, number)))
                sess.run(train_op, running._feed(placeholders, step))
                values.append(sess.run(variables))
            updates = sess.run(versions.tf_variable(optimizer.iterations))
            assert updates == problem.steps // problem.batches
            return running.Trace(values, {**_fetch(sess, _slots(optimizer, variables)), **state})


def eager(problem, make, wrap=lambda train: train, api="optimizer_v2", variable=tf.Variable):
    """Trains with the Keras optimizer eagerly; `wrap` may turn the step into a tf.function."""
    variables = {
        name: variable(value, name=name, dtype=value.dtype)
        for name, value in problem.values.items()
    }
    optimizer = bridged(make, api)

    def train(tensors):
        optimizer.apply_gradients(running._as_gradients(problem, tensors, variables))

    train = wrap(train)
    values, state = [], {}
    for number, step in enumerate(problem.gradients):
        if number:
            state.update(_numpy(_state(optimizer, variables, number)))
        train(tf.nest.map_structure(tf.constant, running._plain(step)))
        values.append(_numpy(variables))
    assert int(optimizer.iterations.numpy()) == problem.steps // problem.batches
    return running.Trace(values, {**_numpy(_slots(optimizer, variables)), **state})


def function(problem, make, **arguments):
    def wrap(train):
        return training_function(train, [running.signature(problem)])

    return eager(problem, make, wrap, **arguments)


# A small model: ids [batch, 3] -> Embedding -> Flatten -> Dense, mean squared error.

# The batch size is a power of two, so that different ways to compute the mean round equally. Keras
# casts the targets to float32, so they are multiples of 1/8, which every dtype represents exactly.
BATCH = 8


class Model(NamedTuple):
    """The initial weights of a small model, and its batches.

    Attributes:
      values: the initial weights by name.
      trained: the names of the weights that are trained.
      dtype: the name of the weights' dtype.
      batches: a list of (ids, targets).
      batches_a_step: how many batches the optimizer accumulates for an update.
    """

    values: dict
    trained: tuple
    dtype: str
    batches: list
    batches_a_step: int = 1

    @property
    def steps(self):
        return len(self.batches)


def small_model(dtype, only=(), steps=24):
    """Returns a `Model`.

    Args:
      dtype: the name of the weights' dtype.
      only: names of variables of `mixed`. Only the corresponding weights are trained (`table` for
        "table", `kernel` for "matrix", `bias` for "vector"). Empty for all weights.
      steps: the number of batches.
    """
    random = np.random.RandomState(3)
    cast = problems.numpy_dtype(dtype)
    values = {"table": random.randn(9, 2), "kernel": random.randn(6, 1), "bias": random.randn(1)}
    values = {name: value.astype(cast) for name, value in values.items()}
    alike = {"table": "table", "kernel": "matrix", "bias": "vector"}
    trained = tuple(name for name in values if not only or alike[name] in only)
    batches = [
        (
            random.randint(0, 9, size=(BATCH, 3)),
            (random.randint(-16, 17, size=(BATCH, 1)) / 8).astype(cast),
        )
        for _ in range(steps)
    ]
    return Model(values, trained, dtype, batches)


def fit(model, make, api="optimizer_v2", run_eagerly=False, known_length=True):
    """Trains the small model with `fit`.

    If `known_length` is False, the data is a dataset of unknown length, with 3 batches an epoch.
    """
    keras = keras_apis.keras_2() if api == "optimizer_v2" else versions.keras_3()
    with_bias = "bias" in model.trained
    embedding = keras.layers.Embedding(9, 2, dtype=model.dtype, trainable="table" in model.trained)
    dense = keras.layers.Dense(1, use_bias=with_bias, dtype=model.dtype)
    ids = keras.Input([3], dtype="int64")
    layers = keras.Model(ids, dense(keras.layers.Flatten(dtype=model.dtype)(embedding(ids))))
    embedding.set_weights([model.values["table"]])
    dense.set_weights([model.values[name] for name in ("kernel", "bias")[: 1 + with_bias]])
    variables = {"table": embedding.embeddings, "kernel": dense.kernel, "bias": dense.bias}
    variables = {name: variables[name] for name in model.trained}
    optimizer = bridged(make, api)
    # Losses of Keras 3 compute in float32 by default.
    options = {} if api == "optimizer_v2" else {"dtype": model.dtype}
    loss = keras.losses.MeanSquaredError(**options)
    layers.compile(optimizer, loss, run_eagerly=run_eagerly)
    values, state = [], {}

    class Recorder(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            values.append(_numpy(variables))
            if len(values) < model.steps:
                state.update(_numpy(_state(optimizer, variables, len(values))))

    ids, targets = (np.concatenate(parts) for parts in zip(*model.batches))
    targets = targets.astype("f")
    if known_length:
        data = {"x": ids, "y": targets, "batch_size": BATCH}
    else:
        dataset = ending_datasets.in_epochs((ids, targets), BATCH, 3)
        data = {"x": dataset, "epochs": model.steps // 3}
    layers.fit(verbose=0, shuffle=False, callbacks=[Recorder()], **data)
    assert int(optimizer.iterations.numpy()) == model.steps // model.batches_a_step
    return running.Trace(values, {**_numpy(_slots(optimizer, variables)), **state})


def session_model(model, make, config=None, add_bias=tf.nn.bias_add):
    """Trains the small model with the v1 optimizer in a graph-mode Session."""
    with tf.Graph().as_default():
        weights = running._variables(problems.Problem(model.values, [], (), model.dtype), True)
        ids = v1.placeholder(tf.int64, [None, 3])
        targets = v1.placeholder(tf.as_dtype(model.dtype), [None, 1])
        rows = tf.nn.embedding_lookup(weights["table"], ids)
        output = tf.matmul(tf.reshape(rows, [-1, 6]), weights["kernel"])
        if "bias" in model.trained:
            output = add_bias(output, weights["bias"])
        loss = tf.reduce_mean(tf.math.squared_difference(output, targets))
        variables = {name: weights[name] for name in model.trained}
        step = running._global_step("int64")
        optimizer = make(step)
        pairs = optimizer.compute_gradients(loss, list(variables.values()))
        # As in Keras, all gradients are computed before a weight changes. Otherwise, in a Session,
        # the weight decay of tf.contrib.opt would race with the forward pass.
        with tf.control_dependencies([tf.convert_to_tensor(gradient) for gradient, _ in pairs]):
            train_op = optimizer.apply_gradients(pairs, step)
        with running.started(config=config) as sess:
            values, state = [], {}
            for number, batch in enumerate(model.batches):
                if number:
                    state.update(_fetch(sess, _state_in_v1(optimizer, variables, number)))
                sess.run(train_op, dict(zip((ids, targets), batch)))
                values.append(sess.run(variables))
            return running.Trace(values, {**_fetch(sess, _slots(optimizer, variables)), **state})


def dense_1_adds_plainly():
    """Whether Keras is Keras 3 before 3.16, whose `Dense(1)` adds its bias with tf.add.

    The gradient of tf.add is summed in another order than the gradient of tf.nn.bias_add.
    """
    facts = versions.keras_facts()
    return facts["generation"] == 3 and [*map(int, facts["version"].split(".")[:2])] < [3, 16]


session_keras_3_model = functools.partial(
    session_model, add_bias=tf.add if dense_1_adds_plainly() else tf.nn.bias_add
)
session_keras_3_model_without_rewriting = functools.partial(
    session_keras_3_model, config=WITHOUT_REWRITING
)


class Way(NamedTuple):
    """A way to train with a bridged optimizer.

    Attributes:
      task: a function of a dtype, a case's `only` and a number of steps; returns a `Problem` or a
        `Model`.
      run: a function of this `Problem` or `Model` and a case's `make`; trains through the bridge
        and returns the `Trace`.
      reference: like `run`, but trains with the v1 optimizer in a Session.
      own: like `run`, also in a `tf.function` or eagerly, but trains with the v1 optimizer. None if
        `run` uses a Session or `fit`.
      dtypes: the supported dtypes. Layers of some Keras 2 versions do not support 16 bits.
    """

    task: Callable
    run: Callable
    reference: Callable
    own: Optional[Callable] = None
    dtypes: Tuple[str, ...] = DTYPES


WAYS = {
    "graph": Way(mixed, graph, session),
    "function": Way(mixed, function, session, running.function),
    "eager": Way(mixed, eager, session_without_rewriting, running.eager),
    "fit": Way(small_model, fit, session_model, dtypes=("float32", "float64")),
    "fit, unknown length": Way(
        small_model,
        functools.partial(fit, known_length=False),
        session_model,
        dtypes=("float32", "float64"),
    ),
}


def _with_keras_3(way, reference=None, **arguments):
    run = functools.partial(way.run, api="keras3", **arguments)
    return way._replace(run=run, reference=reference or way.reference, dtypes=DTYPES)


KERAS_3_WAYS = {
    "graph": _with_keras_3(WAYS["graph"]),
    "function": _with_keras_3(WAYS["function"]),
    "function, keras.Variable": _with_keras_3(WAYS["function"], variable=keras_variable),
    "eager": _with_keras_3(WAYS["eager"]),
    "eager, keras.Variable": _with_keras_3(WAYS["eager"], variable=keras_variable),
    "fit": _with_keras_3(WAYS["fit"], session_keras_3_model),
    "fit, unknown length": _with_keras_3(WAYS["fit, unknown length"], session_keras_3_model),
    "fit, run_eagerly": _with_keras_3(
        WAYS["fit"], session_keras_3_model_without_rewriting, run_eagerly=True
    ),
}
WAYS_OF = {"optimizer_v2": WAYS, "keras3": KERAS_3_WAYS}
