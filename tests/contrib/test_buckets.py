"""Tests of `contrib.training.bucket_by_sequence_length`, with real queues and threads."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contrib.pieces import ORIGINS, piece

v1 = tf.compat.v1
LENGTHS = [1, 7, 2, 3, 8, 1, 5, 9, 3, 4]


def batches(origin, boundaries, batch_size, as_dict=False, **arguments):
    """Returns the batches of ten examples, in order: their lengths and their padded values."""
    bucket = piece(origin, "training.bucket_by_sequence_length")
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.train.range_input_producer(len(LENGTHS), num_epochs=1, shuffle=False)
        number = examples.dequeue()
        length = tf.gather(tf.constant(LENGTHS), number)
        tensors = [tf.fill([length], number), tf.strings.as_string(length)]
        if "keep_input" in arguments:
            arguments["keep_input"] = tf.not_equal(number, 2)
        if as_dict:
            tensors = dict(zip(["values", "text"], tensors))
        lengths, batch = bucket(
            *(length, tensors, batch_size, boundaries), dynamic_pad=True, **arguments
        )
        shapes = [each.shape.as_list() for each in tf.nest.flatten([lengths, batch])]
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = v1.train.start_queue_runners(session, coordinator)
        found = []
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                found.append(session.run([lengths, batch]))
        coordinator.request_stop()
        coordinator.join(threads)
    return shapes, sorted(found, key=lambda each: each[0].tolist())


@pytest.mark.parametrize("origin", ORIGINS)
def test_batches_have_similar_lengths(origin):
    shapes, found = batches(origin, [3, 5], 2)
    assert shapes == [[2], [2, None], [2]]
    assert [each.tolist() for each, _ in found] == [[1, 2], [3, 3], [5, 9], [7, 8]]
    values, text = found[0][1]
    np.testing.assert_array_equal(values, [[0, 0], [2, 2]])
    assert text.tolist() == [b"1", b"2"]


@pytest.mark.parametrize("origin", ORIGINS)
def test_sizes_capacities_and_smaller_batches(origin):
    shapes, found = batches(
        *(origin, [3, 5], [2, 3, 4], True),
        bucket_capacities=[8, 9, 10],
        allow_smaller_final_batch=True,
        keep_input=True,
        name="own",
    )
    assert shapes == [[None], [None], [None, None]]
    assert [each.tolist() for each, _ in found] == [[1, 1], [3, 3, 4], [7, 8, 5, 9]]
    assert sorted(found[0][1]) == ["text", "values"]
    assert found[2][1]["values"].shape == (4, 9)


@pytest.mark.parametrize("origin", ORIGINS)
def test_what_is_refused(origin):
    bucket = piece(origin, "training.bucket_by_sequence_length")
    for wrong in ([3, 3], []):
        with pytest.raises(ValueError, match="must"):
            bucket(tf.constant(2), [tf.constant(1)], 2, wrong)
    with pytest.raises(ValueError, match="bucket_capacities"):
        bucket(tf.constant(2), [tf.constant(1)], 2, [3], bucket_capacities=[1])
