"""Tests that tf.contrib's names in tf-slim compute what tf.contrib computes, and train."""

import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_slim

from legacy_opt import compat, versions
from legacy_opt.compat.old_programs import old_names
from legacy_opt.compat.old_programs.old_names import moved_names
from tests.tools import signatures_of_tensorflow_1 as signatures

v1 = tf.compat.v1
pytestmark = pytest.mark.filterwarnings("ignore:.layer.apply. is deprecated:UserWarning")
HOMES = {
    old: new
    for old, new in moved_names.MODULES.items()
    if new.startswith("tf_slim") and ".python." not in old
}


def at(root, path):
    for part in path.split("."):
        root = getattr(root, part)
    return root


def batch(*shape):
    return tf.constant(np.random.RandomState(3).rand(*shape).astype(np.float32))


def trained_batch_norm(layers):
    outputs = layers.batch_norm(batch(4, 3), is_training=True, scale=True, decay=0.9)
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return tf.identity(outputs)


def with_arg_scope(layers, arg_scope):
    weights = layers.variance_scaling_initializer(seed=4)
    scope = {"weights_initializer": weights, "weights_regularizer": layers.l2_regularizer(0.1)}
    with arg_scope([layers.conv2d, layers.fully_connected], **scope):
        outputs = layers.conv2d(batch(2, 6, 6, 3), 4, 3, scope="first")
        outputs = layers.fully_connected(layers.flatten(outputs), 2, scope="second")
    return tf.reduce_sum(outputs) + v1.losses.get_regularization_loss()


# Each builds tensors with a function that gets a module of tf.contrib, or its home in tf_slim.
CASES = {
    "layers": {
        "conv2d": lambda m: m.conv2d(batch(2, 5, 5, 3), 4, [3, 3], stride=2, padding="SAME"),
        "separable_conv2d": lambda m: m.separable_conv2d(batch(2, 5, 5, 3), 4, 3, 2),
        "fully_connected": lambda m: m.fully_connected(batch(4, 3), 5, activation_fn=tf.nn.tanh),
        "batch_norm": trained_batch_norm,
        "layer_norm": lambda m: m.layer_norm(batch(4, 6)),
        "instance_norm": lambda m: m.instance_norm(batch(2, 3, 3, 2)),
        "dropout": lambda m: m.dropout(batch(8, 8), 0.5, seed=2),
        "max_pool2d": lambda m: m.max_pool2d(batch(2, 6, 6, 1), 2),
        "one_hot_encoding": lambda m: m.one_hot_encoding([1, 0, 2], 3),
        "softmax": lambda m: m.softmax(batch(3, 4)),
        "unit_norm": lambda m: m.unit_norm(batch(3, 4), 1),
        "l1_l2_regularizer": lambda m: m.l1_l2_regularizer(0.1, 0.2)(batch(3, 4)),
        "xavier_initializer": lambda m: m.xavier_initializer(seed=1)([4, 5]),
        "arg_scope": lambda m: with_arg_scope(
            m, (tf_slim if m is tf_slim else tf.contrib.framework).arg_scope
        ),
    },
    "losses": {
        "softmax_cross_entropy": lambda m: m.softmax_cross_entropy(batch(4, 3), tf.eye(4)[:, :3]),
        "mean_squared_error": lambda m: m.mean_squared_error(batch(4), tf.ones(4)),
        "get_total_loss": lambda m: m.log_loss(batch(4), tf.ones(4)) + m.get_total_loss(),
    },
    "metrics": {
        "streaming_accuracy": lambda m: m.streaming_accuracy([1, 0, 1], [1, 1, 1])[1],
        "streaming_auc": lambda m: m.streaming_auc(batch(3), tf.constant([0, 1, 1]))[1],
        "streaming_mean": lambda m: m.streaming_mean(batch(4))[1],
        "streaming_precision": lambda m: m.streaming_precision([1, 0, 1], [1, 1, 0])[1],
    },
}


def results(build, module):
    """Returns the values of a tensor and of all variables, by their names."""
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.set_random_seed(7)
        with v1.variable_scope("", use_resource=True):
            tensor = build(module)
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        found = {"result": session.run(tensor)}
        variables = v1.global_variables() + v1.local_variables()
        found.update({each.name: session.run(each) for each in variables})
        assert graph.get_operations()
        return found


if versions.has_contrib():

    @pytest.mark.parametrize("old", sorted(HOMES))
    def test_tf_slim_has_the_names(old):
        module, home = at(tf, old[3:]), at(tf_slim, HOMES[old][8:]) if HOMES[old][8:] else tf_slim
        names = {name for name in dir(module) if not name.startswith("_")}
        names -= {"absolute_import", "division", "print_function"}
        for name in names:
            is_row = f"{old}.{name}" in old_names.FATES
            if not is_row and not isinstance(getattr(module, name), types.ModuleType):
                assert hasattr(home, name), name

    @pytest.mark.parametrize(
        "module, name", [(module, name) for module, cases in CASES.items() for name in cases]
    )
    def test_tf_slim_computes_the_same(module, name):
        build = CASES[module][name]
        home = tf_slim if module == "layers" else getattr(tf_slim, module)
        expected, found = results(build, getattr(tf.contrib, module)), results(build, home)
        assert list(expected) == list(found)
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value, err_msg=key)

else:

    @pytest.mark.parametrize(
        "module, name", [(module, name) for module, cases in CASES.items() for name in cases]
    )
    def test_the_names_are_those_of_tf_slim(module, name):
        with compat.patch_tensorflow():
            contrib = getattr(tf.contrib, module)
            if name == "arg_scope":
                assert tf.contrib.framework.arg_scope is tf_slim.arg_scope
            else:
                homes = {"layers": tf_slim, "losses": tf_slim.losses}
                assert module == "metrics" or getattr(contrib, name) is getattr(homes[module], name)
                assert results(CASES[module][name], contrib)

    def test_no_name_is_forwarded_with_another_meaning():
        verdicts = [each for each in signatures.verdicts() if "slim" in each[0]]
        assert len(verdicts) > 50 and not [
            each for each in verdicts if each[1] == "another meaning"
        ]


def test_every_statement_about_tf_slim_is_true():
    """`tests/old_names/test_advice.py` tests the other advice of `legacy-opt audit`."""
    command = [sys.executable, "-m", "tests.tools.advice", "tf_slim"]
    assert subprocess.check_output(command, text=True, timeout=300).strip() == ""


SCRIPT = """
import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.contrib.layers import xavier_initializer
from tensorflow.contrib.layers.python.layers import regularizers

random = np.random.RandomState(0)
images = random.rand(32, 8, 8, 1).astype(np.float32)
labels = (images.mean((1, 2, 3)) > 0.5).astype(np.int64)
x, y = tf.constant(images), tf.constant(labels)
with slim.arg_scope([slim.conv2d, slim.fully_connected],
                    weights_initializer=xavier_initializer(seed=1),
                    weights_regularizer=regularizers.l2_regularizer(1e-4),
                    normalizer_fn=slim.batch_norm):
    net = slim.repeat(x, 2, slim.conv2d, 4, [3, 3], scope="conv")
    net = slim.max_pool2d(net, [2, 2])
    logits = slim.fully_connected(slim.flatten(net), 2, activation_fn=None, normalizer_fn=None)
tf.losses.sparse_softmax_cross_entropy(y, logits)
loss = tf.losses.get_total_loss()
train_op = tf.contrib.training.create_train_op(loss, tf.contrib.opt.LazyAdamOptimizer(0.01))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    losses = [float(session.run(train_op)) for _ in range(30)]
print("fell" if losses[-1] < 0.8 * losses[0] else losses)
"""


def test_an_unchanged_script_trains(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "legacy_opt", "run", str(script)]
    output = subprocess.check_output(command, text=True, timeout=300)
    assert output.split()[-1:] == ["fell"], output
