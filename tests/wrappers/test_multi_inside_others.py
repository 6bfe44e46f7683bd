"""Tests MultiOptimizer with object-based checkpoints and in canned Estimators."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import MultiOptimizer
from legacy_opt.compat import estimator
from tests.support import estimators
from tests.wrappers.wide_and_deep import FOUR, no_global_step_warnings  # noqa: F401

v1 = tf.compat.v1


def test_an_object_based_checkpoint(tmp_path):
    def make():
        w, table = tf.Variable([1.0, 2.0], name="w"), tf.Variable(tf.ones([3, 2]), name="table")
        step = tf.Variable(0, dtype=tf.int64, name="step")
        adams = FOUR["Adam"](step), FOUR["Lazy"](step)
        multi = MultiOptimizer([(adams[0], [table]), (adams[1], [w])])
        nested = MultiOptimizer([(multi, "w|table")])

        def train():
            grads = tf.constant([0.5, -1.0]), tf.IndexedSlices(tf.ones([2, 2]), [0, 2], [3, 2])
            nested.apply_gradients(zip(grads, [w, table]), global_step=step)
            return [each.numpy() for each in [w, table, step] + adams[0].variables()]

        return train, tf.train.Checkpoint(w=w, table=table, step=step, optimizer=nested)

    train, checkpoint = make()
    train()
    path = checkpoint.save(str(tmp_path / "model"))
    expected = train()
    for trained_before in (False, True):
        train, checkpoint = make()
        if trained_before:
            train()
        status = checkpoint.restore(path)
        for one, other in zip(train(), expected):
            np.testing.assert_array_equal(one, other)
        status.assert_consumed()


# --- In canned estimators.


def of_two(linear, dnn):
    return {"linear_optimizer": linear, "dnn_optimizer": dnn}


def two_of_ours():
    decay = legacy_opt.AdagradDecayOptimizer(0.1, None)  # no decay before step 100,000
    # The Estimator increments the global step itself, after both optimizers.
    decay.global_step_is_advanced = True
    return of_two(decay, legacy_opt.LazyAdamOptimizer(0.01))


def one_multi():
    multi = MultiOptimizer(
        [(v1.train.AdagradOptimizer(0.1), "linear/"), (v1.train.AdamOptimizer(0.01), "dnn/")]
    )
    return of_two(multi, multi)


def trained_canned(estimator_class, optimizers):
    """Trains the model of a canned estimator; returns all variables by name."""
    column = tf.feature_column.categorical_column_with_identity("id", 9)
    canned = estimator_class(
        linear_feature_columns=[column],
        dnn_feature_columns=[tf.feature_column.numeric_column("x")],
        dnn_hidden_units=[3],
        **optimizers,
    )
    with tf.Graph().as_default():
        v1.set_random_seed(3)
        v1.train.get_or_create_global_step()
        features = {"id": tf.constant([[1], [5], [5], [0]]), "x": tf.constant([1.0, 2.0, 0.5, 0.0])}
        labels = tf.constant([[1.0], [0.0], [0.0], [1.0]])
        spec = canned.model_fn(features, labels, estimator.ModeKeys.TRAIN, canned.config)
        variables = {each.op.name: each for each in v1.global_variables()}
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            session.run(v1.tables_initializer())
            for _ in range(4):
                session.run(spec.train_op)
            return session.run(variables)


@pytest.mark.parametrize("optimizers", [two_of_ours, one_multi])
@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
@estimators.needed
def test_canned_wide_and_deep(kind, optimizers):
    """The optimizers compute the same as Adagrad and Adam, so all variables must be bit-equal."""
    canned = getattr(estimator, "DNNLinearCombined" + kind)
    stock = of_two(v1.train.AdagradOptimizer(0.1), v1.train.AdamOptimizer(0.01))
    actual, expected = (trained_canned(canned, each) for each in (optimizers(), stock))
    assert actual["global_step"] == 4
    assert any(np.any(actual[name] != 0) for name in actual if name.startswith("linear/"))
    assert any(name.endswith("/Adagrad") for name in expected)
    for name, value in expected.items():
        same = name.replace("/Adagrad", "/AdagradDecay") if name not in actual else name
        np.testing.assert_array_equal(actual[same], value, err_msg=name)
