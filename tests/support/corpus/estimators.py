"""An Estimator that trains every optimizer."""

import os

import numpy as np
import tensorflow as tf

from legacy_opt.compat import estimator
from tests.support.corpus import graphs

v1 = tf.compat.v1


def _input_fn(first):
    steps = [graphs.gradients(number) for number in range(first, graphs.STEPS + 1)]
    arrays = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
    return tf.data.Dataset.from_tensor_slices(arrays)


def _model_fn(features, labels, mode):
    fed = {name: tf.reshape(features[name], a.shape) for name, a in graphs.gradients(0).items()}
    training = graphs.Training("resource", fed, v1.train.get_global_step())
    return estimator.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=training.train_op)


def train(folder, last):
    """Trains to the global step `last` in a model_dir; returns the path of the checkpoint."""
    config = estimator.RunConfig(
        session_config=graphs.AS_WRITTEN,
        log_step_count_steps=None,
        save_summary_steps=None,
        tf_random_seed=1,
    )
    model = estimator.Estimator(_model_fn, str(folder), config)
    before = model.latest_checkpoint()
    first = 0 if before is None else int(v1.train.load_variable(before, "global_step"))
    model.train(lambda: _input_fn(first), max_steps=last)
    return os.path.join(str(folder), f"model.ckpt-{last}")


def state(prefix):
    """Returns the arrays of a checkpoint by name."""
    reader = v1.train.NewCheckpointReader(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
