"""Tests of `contrib.framework`."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contrib.pieces import ORIGINS, piece, run

v1 = tf.compat.v1


@pytest.mark.parametrize("origin", ORIGINS)
def test_checkpoints_by_the_names_of_arguments(origin, tmp_path):
    path = str(tmp_path / "model")
    found = lambda name: piece(origin, "framework." + name)  # noqa: E731
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("w", initializer=[1.0, 2.0])
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, path)
    assert found("list_variables")(checkpoint_dir=path) == [("w", [2])]
    assert found("load_variable")(checkpoint_dir=path, name="w").tolist() == [1.0, 2.0]
    assert found("load_checkpoint")(filepattern=path).has_tensor("w")

    def build():
        with v1.variable_scope("scope"):
            variable = v1.get_variable("w", [2], initializer=v1.zeros_initializer())
        found("init_from_checkpoint")(checkpoint_dir=path, assignment_map={"/": "scope/"})
        return variable.read_value() if hasattr(variable, "read_value") else variable

    assert run(build).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("origin", ORIGINS)
def test_functions_of_structures(origin):
    py_func = piece(origin, "framework.py_func")

    def build():
        one = py_func(lambda x: np.float32(x + 1), [tf.constant(1.0)], None, tf.float32, [])
        two = py_func(
            lambda x, y: {"sum": x + y, "both": (x, y)},
            args=[tf.constant([1, 2])],
            kwargs={"y": tf.constant([3, 4])},
            output_types={"sum": tf.int32, "both": (tf.int32, tf.int32)},
            output_shapes=lambda x, y: {"sum": [2], "both": ([None], x.shape)},
        )
        shapes = [two["sum"].shape, two["both"][0].shape, two["both"][1].shape]
        assert [one.shape.as_list()] + [each.as_list() for each in shapes] == [[], [2], [None], [2]]
        in_tuple = py_func(lambda x: (x,), [tf.constant(5.0)], None, tf.float32)
        return one, two, in_tuple

    one, two, in_tuple = run(build)
    assert one == 2.0 and in_tuple == 5.0 and two["sum"].tolist() == [4, 6]
    np.testing.assert_array_equal(two["both"], [[1, 2], [3, 4]])


@pytest.mark.parametrize("origin", ORIGINS)
def test_py_func_refuses(origin):
    py_func = piece(origin, "framework.py_func")
    with pytest.raises(TypeError, match="args must be"):
        py_func(len, 1, None, tf.int32)
    with pytest.raises(TypeError, match="kwargs must be"):
        py_func(len, [1], tf.int32)
