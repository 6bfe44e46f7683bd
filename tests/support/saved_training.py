"""Trains in a graph-mode Session that restores and saves checkpoints of a Saver."""

import numpy as np
import tensorflow as tf

from tests.support import problems

v1 = tf.compat.v1


def _loss(variable, gradient):
    """Returns a loss whose gradient is the given one, and the placeholders to feed with it."""
    if isinstance(gradient, problems.Rows):
        ids = v1.placeholder(tf.int64, [None])
        values = v1.placeholder(gradient.values.dtype, [None, *gradient.values.shape[1:]])
        rows = v1.nn.embedding_lookup(variable, ids, partition_strategy="div")
        return tf.reduce_sum(rows * values), [ids, values]
    whole = v1.placeholder(gradient.dtype, gradient.shape)
    return tf.reduce_sum(variable * whole), [whole]


def _fed(gradient):
    if isinstance(gradient, problems.Rows):
        return [gradient.ids, gradient.values]
    return [gradient]


def _initialize(session, variables, values):
    session.run(v1.global_variables_initializer())
    for name, variable in variables.items():
        for part in list(variable) if hasattr(variable, "as_tensor") else [variable]:
            info, value = part._save_slice_info, values[name]
            if info is not None:
                value = value[
                    tuple(slice(a, a + n) for a, n in zip(info.var_offset, info.var_shape))
                ]
            session.run(part.assign(value))


def train(problem, make_optimizer, steps, path, restore=None, partitions=None):
    """Trains and saves a checkpoint.

    Args:
      problem: a `problems.Problem`.
      make_optimizer: a function of the global step that returns an optimizer.
      steps: the numbers of the steps to train, a range.
      path: the prefix of the checkpoint to save.
      restore: the prefix of a checkpoint to restore; None for the problem's initial values.
      partitions: a dict from names of variables to partitioners.

    Returns:
      The values of the variables after each step.
    """
    with tf.Graph().as_default():
        variables = {
            name: v1.get_variable(
                name,
                value.shape,
                value.dtype,
                v1.zeros_initializer(),
                partitioner=(partitions or {}).get(name),
                use_resource=True,
            )
            for name, value in problem.values.items()
        }
        step = v1.train.get_or_create_global_step()
        losses = {name: _loss(variables[name], each) for name, each in problem.gradients[0].items()}
        optimizer = make_optimizer(step)
        total = sum(loss for loss, _ in losses.values())
        train_op = optimizer.apply_gradients(optimizer.compute_gradients(total), step)
        saver = v1.train.Saver()
        found = []
        with v1.Session() as session:
            _initialize(session, variables, problem.values)
            if restore is not None:
                saver.restore(session, str(restore))
            for number in steps:
                feed = {}
                for name, gradient in problem.gradients[number].items():
                    feed.update(zip(losses[name][1], _fed(gradient)))
                session.run(train_op, feed)
                tensors = {name: tf.convert_to_tensor(each) for name, each in variables.items()}
                found.append({name: np.copy(each) for name, each in session.run(tensors).items()})
            saver.save(session, str(path), write_meta_graph=False)
    return found
