"""Records the checkpoints of TensorFlow 1.15 in tests/data, and reads them.

From the checkout's root::

    .nox/1.15/bin/python -m tests.tools.record_data tests/data

Each checkpoint except `truncated` has a file `<name>.npz` with the checkpoint's values, the
gradients of five further training steps, and the values after these steps. The loss is linear in
the variables, and its coefficients come from placeholders, so the gradients are the same on every
TensorFlow version. `build` builds the graphs on any TensorFlow version, except the graph with
`tf.contrib.layers.optimize_loss`, which needs tf.contrib.
"""

import os
import shutil
import sys
import tempfile
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer
from tests.support.paths import DATA

v1 = tf.compat.v1

DATA = str(DATA)
STEPS_BEFORE, STEPS_AFTER = 12, 5
SHAPES = {"embeddings": (7, 4), "dense/kernel": (4, 3), "dense/bias": (3,)}
PARTS = 3
ADAM = {"learning_rate": 0.01, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6}
ADAGRAD_DECAY = {
    "learning_rate": 0.1,
    "initial_accumulator_value": 0.2,
    "accumulator_decay_step": 4,
    "accumulator_decay_rate": 0.6,
}


class Graph(NamedTuple):
    """A training graph.

    Attributes:
      variables: a dict from name to variable, or to the list of a variable's partitions.
      feeds: a dict from the names in `batch` to placeholders.
      train_op: the operation that runs one training step.
    """

    variables: dict
    feeds: dict
    train_op: tf.Operation


class Recorded(NamedTuple):
    """A recorded checkpoint.

    Attributes:
      prefix: the checkpoint's path without suffix.
      saved: a dict from name to array, the checkpoint's values.
      later: the values after the further steps.
      batches: for each further step a dict of arrays. `dense/kernel` and `dense/bias` are the
        gradients of these variables. For the variable `embeddings`, `rows` are the gradients of
        the rows `ids`; some ids are repeated.
    """

    prefix: str
    saved: dict
    later: dict
    batches: list


def load(name):
    """Returns the `Recorded` with this name."""
    with np.load(os.path.join(DATA, name + ".npz")) as file:
        arrays = dict(file)

    def part(head):
        return {key[len(head) :]: value for key, value in arrays.items() if key.startswith(head)}

    batches = [part(f"batch_{step}/") for step in range(STEPS_AFTER)]
    return Recorded(os.path.join(DATA, name), part("saved/"), part("later/"), batches)


def batch(step):
    """Returns the gradients of a training step, which are the same with every NumPy version."""
    random = np.random.RandomState(step)
    ids = random.randint(0, SHAPES["embeddings"][0], size=random.randint(2, 6)).astype(np.int64)
    ids[0] = ids[-1]
    shapes = dict(SHAPES, rows=(len(ids), SHAPES["embeddings"][1]))
    del shapes["embeddings"]
    gradients = {
        name: random.uniform(-1, 1, size=shape).astype(np.float32)
        for name, shape in sorted(shapes.items())
    }
    return dict(gradients, ids=ids)


def build(name):
    """Builds the graph of a checkpoint in the default graph.

    Args:
      name: "adam_tf115", "optimize_loss_tf115" or "partitioned_tf115".

    Returns:
      The `Graph`.
    """
    step = v1.train.get_or_create_global_step()
    parts = PARTS if name == "partitioned_tf115" else None
    variables = {each: _variable(each, parts) for each in SHAPES}
    dense = ("dense/kernel", "dense/bias")
    feeds = {each: v1.placeholder(tf.float32, SHAPES[each]) for each in dense}
    feeds["ids"] = v1.placeholder(tf.int64, [None])
    feeds["rows"] = v1.placeholder(tf.float32, [None, SHAPES["embeddings"][1]])
    rows = v1.nn.embedding_lookup(variables["embeddings"], feeds["ids"], partition_strategy="div")
    loss = tf.reduce_sum(rows * feeds["rows"])
    for each in dense:
        loss += tf.reduce_sum(variables[each] * feeds[each])
    return Graph(variables, feeds, _train_op(name, loss, step))


def _variable(name, parts):
    partitioner = v1.fixed_size_partitioner(parts) if parts and name == "embeddings" else None
    variable = v1.get_variable(
        name,
        SHAPES[name],
        tf.float32,
        v1.random_uniform_initializer(-1, 1, seed=1),
        partitioner=partitioner,
        use_resource=False,
    )
    return list(variable) if partitioner else variable


def _train_op(name, loss, step):
    if name == "optimize_loss_tf115":
        from tensorflow.contrib import layers

        rate = ADAM["learning_rate"]
        settings = {key: value for key, value in ADAM.items() if key != "learning_rate"}
        return layers.optimize_loss(
            loss, step, rate, lambda rate: v1.train.AdamOptimizer(rate, **settings)
        )
    if name == "partitioned_tf115":
        optimizer = AdagradDecayOptimizer(global_step=step, **ADAGRAD_DECAY)
    else:
        optimizer = v1.train.AdamOptimizer(**ADAM)
    return optimizer.minimize(loss, step)


def read_all(sess):
    """Returns the values of all variables by name, with partitions concatenated."""
    values, whole = {}, {}
    for variable in v1.global_variables():
        info = variable._save_slice_info
        if info is None:
            values[variable.op.name] = sess.run(variable)
        else:
            parts = whole.setdefault(info.full_name, {})
            parts[tuple(info.var_offset)] = sess.run(variable)
    for name, parts in whole.items():
        values[name] = np.concatenate([parts[offset] for offset in sorted(parts)])
    return values


def train(graph, sess, arrays):
    """Runs one training step with the gradients in `arrays`."""
    sess.run(graph.train_op, {graph.feeds[name]: value for name, value in arrays.items()})


def record(name, out, v1_format=False):
    """Trains, saves a checkpoint, trains further, and writes all values to a folder."""
    with tf.Graph().as_default(), tempfile.TemporaryDirectory() as folder:
        graph = build(name)
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            for step in range(STEPS_BEFORE):
                train(graph, sess, batch(step))
            version = v1.train.SaverDef.V1 if v1_format else v1.train.SaverDef.V2
            name += "_v1_format" if v1_format else ""
            saver = v1.train.Saver(write_version=version)
            saver.save(sess, os.path.join(folder, name), write_meta_graph=False)
            arrays = {"tensorflow": np.array(tf.__version__)}
            arrays.update(("saved/" + key, value) for key, value in read_all(sess).items())
            for step in range(STEPS_AFTER):
                gradients = batch(STEPS_BEFORE + step)
                train(graph, sess, gradients)
                arrays.update((f"batch_{step}/{k}", g) for k, g in gradients.items())
            arrays.update(("later/" + key, value) for key, value in read_all(sess).items())
        os.remove(os.path.join(folder, "checkpoint"))
        np.savez_compressed(os.path.join(folder, name + ".npz"), **arrays)
        for each in os.listdir(folder):
            shutil.move(os.path.join(folder, each), os.path.join(out, each))


def truncate(source, target):
    """Copies a checkpoint, but only the first half of its data file."""
    shutil.copy(source + ".index", target + ".index")
    data_file = ".data-00000-of-00001"
    with open(source + data_file, "rb") as file:
        content = file.read()
    with open(target + data_file, "wb") as file:
        file.write(content[: len(content) // 2])


def main(out):
    """Records all checkpoints."""
    for name in ("adam_tf115", "optimize_loss_tf115", "partitioned_tf115"):
        record(name, out)
    record("adam_tf115", out, v1_format=True)
    truncate(os.path.join(out, "adam_tf115"), os.path.join(out, "truncated"))


if __name__ == "__main__":
    main(sys.argv[1])
