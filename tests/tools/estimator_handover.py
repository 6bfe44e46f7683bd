"""Continues the training of an Estimator that another TensorFlow version has begun.

    .nox/1.15/bin/python -m tests.tools.estimator_handover FOLDER 20
    .nox/2.21/bin/python -m tests.tools.estimator_handover FOLDER 40
    .nox/1.15/bin/python -m tests.tools.estimator_handover FOLDER 60

FOLDER is the Estimator's model_dir, and the number is the global step to stop at. Each command
asserts that all restored variables and slots equal the checkpoint bit for bit. The command also
trains from the same checkpoint in a Session, and asserts that the results equal the Estimator's
last checkpoint bit for bit.
"""

import argparse

import numpy as np
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import estimator
from tests.support import running

v1 = tf.compat.v1


def input_fn(start):
    """Returns a Dataset of (ids, targets), without the batches before the global step `start`."""
    random = np.random.RandomState(1)
    ids = random.randint(0, 50, [200, 8])
    targets = random.randn(200, 8).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((ids, targets)).skip(start)


def model_fn(features, labels, mode):
    """Fits the product of table rows and weights to targets; the table has a sparse gradient."""
    table = v1.get_variable("table", [50, 4], initializer=v1.random_normal_initializer(seed=1))
    weights = v1.get_variable("weights", [4, 1], initializer=v1.random_normal_initializer(seed=2))
    output = tf.reshape(tf.matmul(tf.gather(table, features), weights), [-1])
    loss = tf.reduce_mean(tf.square(output - labels))
    step = v1.train.get_global_step()
    decaying = legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=3)
    optimizer = legacy_opt.MultiOptimizer(
        [(decaying, "table")], default=legacy_opt.LazyAdamOptimizer(0.01)
    )
    return estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, step))


class Restored(v1.train.SessionRunHook):
    """Reads all variables before the first step."""

    def begin(self):
        self.variables = {each.op.name: each for each in v1.global_variables()}

    def after_create_session(self, session, coord):
        self.values = session.run(self.variables)


def state(path):
    """Returns the arrays of a checkpoint by name."""
    reader = v1.train.NewCheckpointReader(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def in_a_session(path, start, last):
    """Trains from a checkpoint, or from the initial values if `path` is None; returns the state."""
    with tf.Graph().as_default():
        v1.train.create_global_step()
        features, labels = v1.data.make_one_shot_iterator(input_fn(start)).get_next()
        train_op = model_fn(features, labels, "train").train_op
        with v1.Session(config=running.AS_WRITTEN) as session:
            if path is None:
                session.run(v1.global_variables_initializer())
            else:
                v1.train.Saver().restore(session, path)
            for _ in range(last - start):
                session.run(train_op)
            return session.run({each.op.name: each for each in v1.global_variables()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("last", type=int)
    arguments = parser.parse_args()
    config = estimator.RunConfig(session_config=running.AS_WRITTEN, log_step_count_steps=None)
    model = estimator.Estimator(model_fn, arguments.folder, config)
    before = model.latest_checkpoint()
    start = 0 if before is None else int(v1.train.load_variable(before, "global_step"))
    restored = Restored()
    model.train(lambda: input_fn(start), hooks=[restored], max_steps=arguments.last)
    if before is not None:
        np.testing.assert_equal(restored.values, state(before))
    np.testing.assert_equal(
        state(model.latest_checkpoint()), in_a_session(before, start, arguments.last)
    )
    done = f"TensorFlow {tf.__version__}: Estimator equals Session in steps {start} to "
    restored_too = " (restored values equal the checkpoint)" if start else ""
    print(f"{done}{arguments.last}{restored_too}")


if __name__ == "__main__":
    v1.logging.set_verbosity(v1.logging.ERROR)
    main()
