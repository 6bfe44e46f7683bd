"""Datasets of unknown length, and the variables that a training step changes at their end.

The end comes late, so that whatever does not wait for the batch has enough time to run.
"""

import itertools
import time

import numpy as np
import tensorflow as tf

from tests.support import running

v1 = tf.compat.v1
DELAY = 0.03  # seconds


def _dataset(elements, example):
    """Returns a dataset of the tuples of arrays that the function `elements` yields."""

    def slowly_ending():
        yield from elements()
        time.sleep(DELAY)

    dtypes = tuple(array.dtype for array in example)
    shapes = tuple((None,) + array.shape[1:] if array.ndim else () for array in example)
    return tf.data.Dataset.from_generator(slowly_ending, dtypes, shapes)


def in_epochs(arrays, batch_size, batches):
    """Returns a dataset whose first iteration gives the first `batches` batches, and so on."""
    size = batch_size * batches
    starts = itertools.cycle(range(0, len(arrays[0]), size))

    def epoch():
        start = next(starts)
        for first in range(start, start + size, batch_size):
            yield tuple(array[first : first + batch_size] for array in arrays)

    return _dataset(epoch, arrays)


def repeated(array, times):
    """Returns a dataset whose elements all equal `array`."""
    return _dataset(lambda: iter([(array,)] * times), (array,)).map(
        lambda each: tf.ensure_shape(each, array.shape)
    )


def _of_gradients(problem):
    elements = [tuple(tf.nest.flatten(running._plain(each))) for each in problem.gradients]
    data = _dataset(lambda: iter(elements), elements[0])
    structure = running.signature(problem)
    return data.map(lambda *flat: tf.nest.pack_sequence_as(structure, flat))


WAYS = ("session-ref", "session-resource", "function")


def changed(way, problem, make_optimizer):
    """Trains until the dataset ends; returns the names of the variables that the last step changes.

    Args:
      way: one of `WAYS`.
      problem: the `Problem`, whose gradients are in the dataset.
      make_optimizer: a function of the global step variable that returns the optimizer.
    """
    if way == "function":
        return _changed_in_function(problem, make_optimizer)
    return _changed_in_session(problem, make_optimizer, way == "session-resource")


def _changed_in_session(problem, make_optimizer, use_resource):
    with tf.Graph().as_default():
        iterator = v1.data.make_initializable_iterator(_of_gradients(problem))
        variables = running._variables(problem, use_resource)
        step = running._global_step(problem.global_step, use_resource)
        optimizer = make_optimizer(step)
        pairs = running._as_gradients(problem, iterator.get_next(), variables)
        train_op = optimizer.apply_gradients(pairs, global_step=step)
        state = {variable.op.name: variable for variable in v1.global_variables()}
        with v1.Session() as sess:
            sess.run([v1.global_variables_initializer(), iterator.initializer])
            return _changed(problem.steps, lambda: sess.run(train_op), lambda: sess.run(state))


def _changed_in_function(problem, make_optimizer):
    variables = {name: tf.Variable(value, name=name) for name, value in problem.values.items()}
    step = tf.Variable(0, dtype=problem.global_step, name="global_step", trainable=False)
    optimizer = make_optimizer(step)
    iterator = iter(_of_gradients(problem))

    @tf.function
    def train():
        pairs = running._as_gradients(problem, next(iterator), variables)
        optimizer.apply_gradients(pairs, global_step=step)

    def read():
        state = [*variables.values(), step, *optimizer.variables()]
        return {each.name: each.numpy() for each in state}

    return _changed(problem.steps, train, read)


def _changed(steps, train, read):
    for _ in range(steps):
        train()
    before = read()
    try:
        train()
    except tf.errors.OutOfRangeError:
        after = read()
        return [name for name in before if not np.array_equal(before[name], after[name])]
    raise AssertionError("the dataset has not ended")
