"""Tests TPUEstimator with use_tpu=False, in the manner of BERT's run_classifier."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdamWeightDecayOptimizer, versions
from legacy_opt.compat import estimator
from tests.support import estimators

pytestmark = estimators.needed
v1 = tf.compat.v1
IS_REVIVED = not versions.has_own_estimator()
random = np.random.RandomState(0)
FEATURES = random.uniform(-1, 1, [12, 3]).astype(np.float32)
LABELS = (FEATURES.sum(1) > 0).astype(np.int32)
START = random.uniform(-1, 1, [3, 2]).astype(np.float32)
BATCH, STEPS = 4, 6
# Measured on TensorFlow 1.15 with ref variables. Newer versions round the last bits differently.
LOSSES_OF_1_15 = [0.7789925, 0.78831697, 1.091906, 0.13495095, 0.22633258, 0.8440883]


def input_fn(params):
    """Returns the examples in batches; `params` has the size of a batch."""
    examples = tf.data.Dataset.from_tensor_slices({"x": FEATURES, "label": LABELS})
    return examples.repeat().batch(params["batch_size"], drop_remainder=True)


def loss_of(features, labels):
    """Returns the loss for each example, and the logits."""
    kernel = v1.get_variable("kernel", [3, 2], initializer=v1.zeros_initializer())
    bias = v1.get_variable("output_bias", [2], initializer=v1.zeros_initializer())
    logits = tf.nn.bias_add(tf.matmul(features, kernel), bias)
    log_probs = tf.nn.log_softmax(logits, axis=-1)
    return -tf.reduce_sum(tf.one_hot(labels, 2) * log_probs, axis=-1), logits


def train_op_of(loss, wrap=None):
    """Returns an operation that trains with BERT's optimizer and schedule, and advances the step.

    Args:
      loss: a scalar.
      wrap: a class that wraps the optimizer, or None.
    """
    step = v1.train.get_or_create_global_step()
    rate = v1.train.polynomial_decay(0.1, step, STEPS, end_learning_rate=0.0)
    excluded = ["LayerNorm", "layer_norm", "bias"]
    optimizer = AdamWeightDecayOptimizer(rate, 0.01, exclude_from_weight_decay=excluded)
    optimizer = wrap(optimizer) if wrap else optimizer
    variables = v1.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), clip_norm=1.0)
    return optimizer.apply_gradients(zip(gradients, variables), global_step=step)


def model_fn_builder(checkpoint, use_tpu, host_calls):
    """Returns a `model_fn` that starts at a checkpoint; `host_calls` gets the loss of each step."""

    def model_fn(features, labels, mode, params):
        del labels, params
        spec = estimator.tpu.TPUEstimatorSpec
        per_example_loss, logits = loss_of(features["x"], features["label"])
        loss = tf.reduce_mean(per_example_loss)
        scaffold_fn = None

        def start():
            v1.train.init_from_checkpoint(checkpoint, {"kernel": "kernel"})
            return v1.train.Scaffold()

        if use_tpu:
            scaffold_fn = start
        else:
            start()
        if mode == estimator.ModeKeys.PREDICT:
            predictions = {"probabilities": tf.nn.softmax(logits)}
            return spec(mode, predictions=predictions, scaffold_fn=scaffold_fn)
        if mode == estimator.ModeKeys.EVAL:
            tensors = [per_example_loss, features["label"], logits]
            metrics = (metric_fn, tensors)
            return spec(mode, loss=loss, eval_metrics=metrics, scaffold_fn=scaffold_fn)
        train_op = train_op_of(loss, v1.tpu.CrossShardOptimizer if use_tpu else None)
        host_call = (functools.partial(host_call_of, host_calls), [tf.reshape(loss, [1])])
        options = {"scaffold_fn": scaffold_fn, "host_call": host_call}
        return spec(mode, loss=loss, train_op=train_op, **options)

    return model_fn


def metric_fn(per_example_loss, labels, logits):
    predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return {
        "eval_accuracy": v1.metrics.accuracy(labels, predicted),
        "eval_loss": v1.metrics.mean(per_example_loss),
    }


def host_call_of(calls, loss):
    """Returns an operation that appends the loss to `calls`."""
    return v1.py_func(lambda value: calls.append(float(value[0])), [loss], [])


@pytest.fixture
def checkpoint(tmp_path):
    """Writes a checkpoint with the kernel's initial value; returns its path."""
    with tf.Graph().as_default(), v1.Session() as session:
        kernel = v1.get_variable("kernel", initializer=START)
        session.run(kernel.initializer)
        return v1.train.Saver([kernel]).save(session, str(tmp_path / "init" / "model.ckpt"))


def made(folder, checkpoint, use_tpu=False, host_calls=None, **options):
    """Returns a TPUEstimator."""
    tpu = estimator.tpu
    config = tpu.RunConfig(
        model_dir=str(folder),
        save_checkpoints_steps=3,
        tpu_config=tpu.TPUConfig(
            iterations_per_loop=2,
            num_shards=8,
            per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    model_fn = model_fn_builder(checkpoint, use_tpu, host_calls)
    sizes = {"train_batch_size": BATCH, "eval_batch_size": 6, "predict_batch_size": 3}
    return tpu.TPUEstimator(model_fn=model_fn, config=config, use_tpu=use_tpu, **sizes, **options)


def of_a_session():
    """Trains without an Estimator; returns the losses and the variables at the end."""
    with tf.Graph().as_default(), v1.Session() as session:
        batch = v1.data.make_one_shot_iterator(input_fn({"batch_size": BATCH})).get_next()
        loss = tf.reduce_mean(loss_of(batch["x"], batch["label"])[0])
        train_op = train_op_of(loss)
        session.run(v1.global_variables_initializer())
        v1.trainable_variables()[0].load(START, session)
        losses = [session.run([loss, train_op])[0] for _ in range(STEPS)]
        variables = {each.op.name: each for each in v1.global_variables()}
        return losses, session.run(variables)


def serving_input_fn():
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    label = v1.placeholder_with_default(tf.constant([0]), [None], name="label")
    return estimator.export.ServingInputReceiver({"x": x, "label": label}, {"x": x})


@pytest.mark.every_lane
def test_berts_flow_trains_evaluates_and_predicts(tmp_path, checkpoint):
    host_calls = []
    model = made(tmp_path / "model", checkpoint, host_calls=host_calls)
    losses, variables = of_a_session()
    np.testing.assert_allclose(losses, LOSSES_OF_1_15, rtol=1e-6)
    model.train(input_fn, max_steps=3)
    model.train(input_fn, max_steps=STEPS)
    assert host_calls == losses
    for name, value in variables.items():
        np.testing.assert_array_equal(model.get_variable_value(name), value, name)

    logits = FEATURES @ variables["kernel"] + variables["output_bias"]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    of_labels = probabilities[np.arange(12), LABELS]
    found = model.evaluate(input_fn, steps=2)
    assert found["global_step"] == STEPS
    assert found["eval_accuracy"] == pytest.approx((of_labels > 0.5).mean())
    assert found["eval_loss"] == pytest.approx(-np.log(of_labels).mean(), rel=1e-6)

    predicted = model.predict(lambda params: input_fn(params).take(4), yield_single_examples=False)
    batches = [each["probabilities"] for each in predicted]
    assert [len(each) for each in batches] == [3] * 4
    np.testing.assert_allclose(np.concatenate(batches), probabilities, rtol=1e-6)
    exported = model.export_saved_model(str(tmp_path / "export"), serving_input_fn)
    assert tf.io.gfile.exists(exported.decode() + "/saved_model.pb")


if IS_REVIVED:

    @pytest.mark.parametrize("words", [{"use_tpu": True}, {}])
    def test_a_tpu_is_refused(words):
        class Own(estimator.tpu.TPUEstimator):
            pass

        for cls in (estimator.tpu.TPUEstimator, Own):
            with pytest.raises(NotImplementedError, match="use_tpu=True .* Pass use_tpu=False"):
                cls(model_fn=None, config=estimator.tpu.RunConfig(), **words)

    def test_wrong_arguments_get_the_originals_errors():
        cls = estimator.tpu.TPUEstimator
        with pytest.raises(ValueError, match="`config` must be provided"):
            cls(None, use_tpu=False)
        with pytest.raises(TypeError, match="use_tpus"):
            cls(None, use_tpus=False)

    def test_embeddings_on_tpus_are_refused():
        with pytest.raises(NotImplementedError, match="EmbeddingConfigSpec is not available with"):
            estimator.tpu.experimental.EmbeddingConfigSpec()

    def test_tensorflow_is_not_changed():
        assert estimator.tpu.TPUEstimator
        for name in ("session_support", "tpu_embedding_gradient", "tpu_embedding"):
            assert f"tensorflow.python.tpu.{name}" not in sys.modules
