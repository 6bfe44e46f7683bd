"""Tests that tf-slim trains with the optimizers of this package."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_slim as slim

import legacy_opt
from legacy_opt import compat

# tf-slim's layers use a deprecated method of Keras.
pytestmark = pytest.mark.filterwarnings("ignore:.layer.apply. is deprecated:UserWarning")
v1 = tf.compat.v1
STEPS = 25
ROWS = 32
IDS, NUMBERS = 20, 5
OPTIMIZERS = {
    "AdagradDecay": lambda step: legacy_opt.AdagradDecayOptimizer(
        0.1, step, accumulator_decay_step=10
    ),
    "AdamAsync": lambda step: legacy_opt.AdamAsyncOptimizer(0.01),
    "accumulated LazyAdam": lambda step: legacy_opt.GradientAccumulationOptimizer(
        legacy_opt.LazyAdamOptimizer(0.02), 2
    ),
    "clipped": lambda step: legacy_opt.clip_gradients_by_norm(
        legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=10), 0.5
    ),
    "two": lambda step: legacy_opt.MultiOptimizer(
        [(v1.train.FtrlOptimizer(0.1), "wide")],
        default=legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=10),
    ),
}


def batches(count):
    """Returns (ids, numbers, labels) of each batch.

    Some ids repeat. Labels depend on ids and numbers.
    """
    random = np.random.RandomState(5)
    of_id, of_numbers = random.normal(size=IDS), random.normal(size=NUMBERS)
    found = []
    for _ in range(count):
        ids = random.randint(0, IDS, size=ROWS)
        numbers = random.normal(size=(ROWS, NUMBERS)).astype(np.float32)
        labels = (of_id[ids] + numbers.dot(of_numbers) > 0).astype(np.float32)
        found.append((ids, numbers, labels))
    return found


def model():
    """Builds a wide & deep model with layers of tf-slim. Returns its placeholders and loss."""
    ids = v1.placeholder(tf.int64, [None])
    numbers = v1.placeholder(tf.float32, [None, NUMBERS])
    labels = v1.placeholder(tf.float32, [None])
    # With ref variables, the results would depend on the order of reads and writes.
    with v1.variable_scope("", use_resource=True):
        initial = v1.random_normal_initializer(stddev=0.1, seed=3)
        table = v1.get_variable("deep/table", [IDS, 4], initializer=initial)
        inputs = tf.concat([tf.gather(table, ids), numbers], axis=1)
        with slim.arg_scope([slim.fully_connected], weights_initializer=initial):
            hidden = slim.fully_connected(inputs, 8, scope="deep/hidden")
            deep = slim.fully_connected(hidden, 1, activation_fn=None, scope="deep/logits")
            wide = slim.fully_connected(numbers, 1, activation_fn=None, scope="wide/logits")
    logits = tf.squeeze(deep + wide, axis=1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    return (ids, numbers, labels), loss


def by_slim(optimizer, loss, step):
    return slim.learning.create_train_op(loss, optimizer, global_step=step)


def by_itself(optimizer, loss, step):
    with tf.control_dependencies([optimizer.minimize(loss, global_step=step)]):
        return tf.identity(loss)


def train(make_optimizer, make_train_op):
    """Trains in a Session. Returns the losses and the final values of all variables."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        placeholders, loss = model()
        train_op = make_train_op(make_optimizer(step), loss, step)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            losses = [
                session.run(train_op, dict(zip(placeholders, batch))) for batch in batches(STEPS)
            ]
            return losses, {each.op.name: session.run(each) for each in v1.global_variables()}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_create_train_op_trains_as_the_optimizer_by_itself(name):
    losses, variables = train(OPTIMIZERS[name], by_slim)
    expected_losses, expected = train(OPTIMIZERS[name], by_itself)
    np.testing.assert_array_equal(losses, expected_losses)
    assert set(variables) == set(expected)
    for each, value in expected.items():
        np.testing.assert_array_equal(variables[each], value, each)
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    updates = STEPS // 2 if name.startswith("accumulated") else STEPS
    assert variables["global_step"] == updates


def pairs(change):
    """Returns a function that computes a gradient and passes it to a function of slim.learning."""

    def build(loss, w, optimizer):
        found = getattr(slim.learning, change)(
            optimizer.compute_gradients(loss), *ARGUMENTS[change](w)
        )
        return [each[0] if isinstance(each, tuple) else each for each in found]

    return build


def train_op(**settings):
    return lambda loss, w, optimizer: slim.learning.create_train_op(loss, optimizer, **settings)


def convolved(x, **settings):
    return slim.conv2d(tf.reshape(x, [1, 1, 1, 2]), 2, [1, 1], **settings)


ARGUMENTS = {
    "clip_gradient_norms": lambda w: [1.0],
    "multiply_gradients": lambda w: [{w: 2.0}],
    "add_gradients_summaries": lambda w: [],
}
# Functions of tf-slim that need names that newer TensorFlows removed, and functions that do not.
NEED_NAMES = {
    **{name: pairs(name) for name in ARGUMENTS},
    "batch_norm": lambda loss, w, optimizer: slim.batch_norm(tf.reshape(w, [2, 1])),
    "normalizer_fn": lambda loss, w, optimizer: convolved(w, normalizer_fn=slim.batch_norm),
    "clip_gradient_norm": train_op(clip_gradient_norm=1.0),
    "summarize_gradients": train_op(summarize_gradients=True),
    "smart_cond": lambda loss, w, optimizer: slim.layers.utils.smart_cond(
        tf.constant(True), lambda: w, lambda: -w
    ),
    "optimize_loss": lambda loss, w, optimizer: slim.optimize_loss(
        loss, v1.train.get_global_step(), 0.1, optimizer
    ),
}
NEED_NONE = {"create_train_op": train_op(), "conv2d": lambda loss, w, optimizer: convolved(w)}
IS_NEWER = tuple(int(each) for each in tf.__version__.split(".")[:2]) > (2, 10)


@pytest.mark.parametrize("name", [*NEED_NAMES, *NEED_NONE])
def test_functions_that_need_the_names_of_patch_tensorflow(name):
    def build():
        with tf.Graph().as_default(), v1.Session() as session:
            w = v1.get_variable("w", initializer=[1.0, 2.0])
            v1.train.get_or_create_global_step()
            optimizer = legacy_opt.AdamAsyncOptimizer(0.01)
            tensors = {**NEED_NAMES, **NEED_NONE}[name](tf.reduce_sum(w * w), w, optimizer)
            session.run(v1.global_variables_initializer())
            session.run(tensors)

    with compat.patch_tensorflow():
        build()
    if IS_NEWER and name in NEED_NAMES:
        with pytest.raises((AttributeError, ImportError)):
            build()
    else:
        build()


# The threads of slim's Supervisor need the model in the global default graph, because
# `with graph.as_default()` applies only to one thread. Therefore this script builds the model in
# the global default graph of a new process, without eager execution.
LOOP = """
import sys
import tensorflow as tf
import tf_slim as slim
import legacy_opt

v1 = tf.compat.v1
v1.disable_v2_behavior()
step = v1.train.get_or_create_global_step()
numbers = tf.constant([[1.0, 2.0], [-1.0, 0.5], [0.5, -2.0]])
labels = tf.constant([[1.0], [0.0], [0.0]])
weights = v1.get_variable("weights", [2, 1], initializer=v1.zeros_initializer())
logits = tf.matmul(numbers, weights)
loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
optimizer = legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=10)
train_op = slim.learning.create_train_op(loss, optimizer)
print(slim.learning.train(train_op, sys.argv[1], number_of_steps=30))
"""


def test_slims_loop_trains_and_writes_checkpoints(tmp_path):
    command = [sys.executable, "-c", LOOP, str(tmp_path)]
    last = float(subprocess.check_output(command, universal_newlines=True))
    assert last < 0.9 * np.log(2)
    saved = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(tmp_path)))
    assert saved.get_tensor("global_step") == 30
    # The accumulator decays three times in 30 training steps, first at global step 9.
    assert saved.get_tensor("weights/AdagradDecay_1").max() == 3
