"""The training in a Session.

python -m leaving.in_tensorflow FOLDER STEPS BATCH_SIZE
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

import legacy_opt
from flights.data import read_flights
from flights.model import Settings, build_logits, build_loss
from legacy_opt import recorded

from . import KEPT

SETTINGS = Settings(optimizer="AdagradDecay", learning_rate=0.05)
PARTS = 3  # of the embedding table


def partitioned(getter, name, *args, **kwargs):
    """Creates variables; the embedding table gets partitions."""
    if name == "embeddings":
        kwargs["partitioner"] = tf.fixed_size_partitioner(PARTS)
    return getter(name, *args, **kwargs)


class Training:
    """The graph, and the flights of each step."""

    def __init__(self, flights, batch_size):
        self.flights, self.batch_size = flights, batch_size
        self.ids = tf.placeholder(tf.int32, [None, flights.ids.shape[1]])
        self.dense = tf.placeholder(tf.float32, [None, flights.dense.shape[1]])
        self.late = tf.placeholder(tf.float32, [None])
        with tf.variable_scope("", custom_getter=partitioned, use_resource=True):
            logits = build_logits(self.ids, self.dense, flights.vocabulary_size, SETTINGS)
        self.loss = build_loss(logits, self.late)
        step = tf.train.get_or_create_global_step()
        self.optimizer = legacy_opt.AdagradDecayOptimizerV2(
            SETTINGS.learning_rate,
            step,
            accumulator_decay_step=SETTINGS.decay_step,
            accumulator_decay_rate=SETTINGS.decay_rate,
        )
        self.optimizer.native = "require"
        self.pairs = self.optimizer.compute_gradients(self.loss)
        self.train = self.optimizer.apply_gradients(self.pairs, step)
        self.variables = joined({variable: variable for _, variable in self.pairs})
        self.gradients = joined({variable: grad for grad, variable in self.pairs})

    def run(self, session, fetches, step):
        """Runs operations with the flights of a step."""
        batch = slice(step * self.batch_size, (step + 1) * self.batch_size)
        inputs = self.ids, self.dense, self.late
        values = self.flights.ids, self.flights.dense, self.flights.late
        return session.run(fetches, {one: each[batch] for one, each in zip(inputs, values)})


def joined(tensors):
    """Joins the tensors of the parts of each variable: a dict from names of variables.

    A sparse gradient becomes a pair of ids and values.
    """
    found, rows = {}, {}
    for variable, tensor in tensors.items():
        name = variable.op.name.partition("/part_")[0]
        if isinstance(tensor, tf.IndexedSlices):
            ids = tf.cast(tensor.indices, tf.int64) + rows.get(name, 0)
            found.setdefault(name, []).append((ids, tensor.values))
            rows[name] = rows.get(name, 0) + variable.shape.as_list()[0]
        else:
            found.setdefault(name, []).append(tf.convert_to_tensor(tensor))
    return {
        name: tuple(tf.concat(each, 0) for each in zip(*parts))
        if isinstance(parts[0], tuple)
        else (tf.concat(parts, 0) if len(parts) > 1 else parts[0])
        for name, parts in found.items()
    }


def main(folder, steps, batch_size):
    """Trains twice `steps` steps, and writes the files of the middle and the losses after it."""
    flights = read_flights(str(folder / "flights.npz"))
    tf.disable_v2_behavior()
    training = Training(flights, batch_size)
    saver = tf.train.Saver()
    recorded.save(recorded.record(training.optimizer), folder / "rule.json")
    arrays, losses = {}, []
    with tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1)) as session:
        session.run(tf.global_variables_initializer())
        for step in range(2 * steps):
            if step == steps:
                saver.save(session, str(folder / "model.ckpt"), write_meta_graph=False)
            fetches = [training.loss, training.train]
            is_kept = steps <= step < steps + KEPT
            found = training.run(session, fetches + [training.gradients] * is_kept, step)
            if step >= steps:
                losses.append(found[0])
            if is_kept:
                for name, grad in found[2].items():
                    parts = grad if isinstance(grad, tuple) else [grad]
                    for number, part in enumerate(parts):
                        arrays[f"gradient/{step - steps}/{number}/{name}"] = part
            if step == steps + KEPT - 1:
                for name, value in session.run(training.variables).items():
                    arrays[f"value/{name}"] = value
    np.savez(str(folder / "stayed.npz"), losses=np.float64(losses), **arrays)
    print(f"TensorFlow {tf.__version__}: {2 * steps} steps, a checkpoint after {steps}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
