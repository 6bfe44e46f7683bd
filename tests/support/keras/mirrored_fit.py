"""Checks that training with `model.fit` on several replicas equals a Session, bit for bit."""

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from tests.support import ending_datasets, problems, running
from tests.support.keras.mirrored_training import (
    KERAS_3,
    OPTIMIZERS,
    POWERS,
    STEPS,
    VALUES,
    assert_everywhere,
    bridged,
    check_powers,
)

BATCH = 8
KERNEL = np.float32([[0.5], [-0.25], [1.0]])
TABLE = VALUES["table"][:, :1]


def keras():
    return versions.keras_3() if KERAS_3 else versions.keras_2()


def examples(repeated=False):
    """Returns x, ids and y of all steps; if `repeated`, all steps have the same examples."""
    random = np.random.RandomState(1)
    drawn, times = (1, STEPS) if repeated else (STEPS, 1)
    x = random.randint(-4, 5, size=(drawn * BATCH, 3)).astype("f")
    ids = random.randint(0, 7, size=(drawn * BATCH, 2))
    y = random.randint(-4, 5, size=(drawn * BATCH, 1)).astype("f")
    return [np.concatenate([value] * times) for value in (x, ids, y)]


def problem_of(x, ids, y):
    """Returns a `Problem` with the examples' gradients, which do not depend on the weights."""
    gradients = []
    for start in range(0, len(x), BATCH):
        part = slice(start, start + BATCH)
        rows = problems.Rows(np.repeat(y[part], 2, axis=0) / BATCH, ids[part].ravel())
        gradients.append({"kernel": x[part].T @ y[part] / BATCH, "table": rows})
    return problems.Problem({"kernel": KERNEL, "table": TABLE}, gradients, ("table",), "float32")


def make_model(strategy, make_optimizer):
    """Returns a compiled model and its variables by name."""
    layers = keras().layers
    with strategy.scope():
        inputs = [keras().Input([3]), keras().Input([2], dtype="int32")]
        dense = layers.Dense(1, use_bias=False)
        embedding = layers.Embedding(7, 1)
        rows = layers.Lambda(lambda rows: tf.reduce_sum(rows, axis=1))
        output = layers.Add()([dense(inputs[0]), rows(embedding(inputs[1]))])
        model = keras().Model(inputs, output)
        loss = lambda true, predicted: (true * predicted)[:, 0]  # noqa: E731
        model.compile(make_optimizer(), loss=loss)
    dense.set_weights([KERNEL])
    embedding.set_weights([TABLE])
    return model, {"kernel": dense.kernel, "table": embedding.embeddings}


def fit_arrays(model, x, ids, y):
    model.fit([x, ids], y, batch_size=BATCH, shuffle=False, verbose=0)


def fit_unknown_length(model, x, ids, y):
    data = ending_datasets.in_epochs((x, ids, y), BATCH, STEPS)
    model.fit(data.map(lambda x, ids, y: ((x, ids), y)), shuffle=False, verbose=0)


def check_fit_with(strategy, name, fit=fit_arrays, repeated=False):
    """Trains with `fit`; compares variables, slots, beta powers and `iterations` with a Session.

    Args:
      strategy: the strategy.
      name: the optimizer, a key in `OPTIMIZERS`.
      fit: a function that takes the model, x, ids and y, and trains the model.
      repeated: whether all steps have the same examples.
    """
    found = examples(repeated)
    expected = running.session(problem_of(*found), OPTIMIZERS[name], use_resource=True)
    model, variables = make_model(strategy, lambda: bridged(OPTIMIZERS[name])(None))
    fit(model, *found)
    for key, variable in variables.items():
        assert_everywhere(strategy, variable, expected.steps[-1][key], key)
    for (key, slot_name), value in expected.slots.items():
        slot = model.optimizer.get_slot(variables[key], slot_name)
        assert_everywhere(strategy, slot, value, (key, slot_name))
    assert_everywhere(strategy, model.optimizer.iterations, np.int64(STEPS), "iterations")
    check_powers(strategy, model.optimizer.weights, POWERS.get(name, ()))
