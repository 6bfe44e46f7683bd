"""Tests of `contrib.layers`."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contrib.pieces import ORIGINS, OURS, piece, run

v1 = tf.compat.v1
IDS = np.array([[3, 0, 3], [1, 3, 1]])
TABLE = np.arange(8, dtype=np.float32).reshape(4, 2)


def embedded(origin, unique):
    """Returns embeddings, the loss of the regularizer, and the gradient of the table."""

    def build():
        call = piece(origin, "layers.embed_sequence")
        found = call(tf.constant(IDS), 4, 2, unique, tf.constant_initializer(TABLE), tf.nn.l2_loss)
        (variable,) = v1.get_collection(v1.GraphKeys.MODEL_VARIABLES)
        assert v1.trainable_variables() == v1.global_variables() == [variable]
        assert variable.name == "EmbedSequence/embeddings:0"
        assert found.shape.as_list() == [2, 3, 2]
        (gradient,) = v1.gradients(found, variable)
        rows = v1.unsorted_segment_sum(gradient.values, gradient.indices, 4)
        return found, v1.losses.get_regularization_loss(), rows

    return run(build)


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices")  # the gradient's rows
@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("unique", [False, True])
def test_rows_of_the_table(origin, unique):
    found, loss, gradient = embedded(origin, unique)
    assert np.array_equal(found, TABLE[IDS])
    assert loss == np.sum(TABLE**2) / 2
    assert gradient[:, 0].tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize("origin", ORIGINS)
def test_reuse(origin):
    def build():
        call = piece(origin, "layers.embed_sequence")
        first = call(tf.constant(IDS), 4, 2, scope="words", trainable=False)
        second = call(tf.constant(IDS), scope="words", reuse=True)
        assert len(v1.global_variables()) == 1 and not v1.trainable_variables()
        return first, second

    assert np.array_equal(*run(build))


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("unique", [False, True])
def test_a_partitioned_table_is_read_in_turn(origin, unique):
    """The rows of 1.15: row i of the table is in part i % 2."""

    def build():
        with v1.variable_scope("parts", partitioner=v1.fixed_size_partitioner(2)):
            start = v1.random_uniform_initializer()
            found = piece(origin, "layers.embed_sequence")(IDS, 4, 2, unique, start)
        return found, v1.global_variables()

    found, parts = run(build)
    assert np.array_equal(found, np.stack(parts, 1).reshape(4, 2)[IDS])


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_table_is_float32_in_a_scope_of_another_dtype(origin):
    def build():
        with v1.variable_scope("wide", dtype=tf.float64):
            found = piece(origin, "layers.embed_sequence")(tf.constant(IDS), 4, 2, unique=True)
        assert [each.dtype.base_dtype for each in v1.global_variables()] == [tf.float32]
        return found

    assert run(build).dtype == np.float32


@pytest.mark.parametrize("origin", ORIGINS)
def test_sizes_are_needed(origin):
    with pytest.raises(ValueError, match="Must specify vocab size .*vocab_size=4 and embed_dim=No"):
        piece(origin, "layers.embed_sequence")(IDS, 4)


@pytest.mark.contrib
def test_the_random_numbers_of_contrib():
    found = [
        run(lambda: piece(origin, "layers.embed_sequence")(tf.constant(IDS), 4, 2), seed=1)  # noqa: B023
        for origin in (OURS, "tf")
    ]
    assert np.array_equal(*found)
