"""v1 checkpoints, and what only Keras 3 keeps."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import load_v1_checkpoint, save_v1_checkpoint, to_keras
from tests.support.checkpoints.v1_checkpoints import write_tensors

pytestmark = pytest.mark.keras3


def variable(name, value):
    return tf.Variable(np.float32([value]), name=name)


def momentum(**options):
    return to_keras(tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), **options)


def train(optimizer, one, gradient=1.0):
    optimizer.apply_gradients([(tf.fill(one.shape, gradient), one)])


def write(path, w, momentum, step):
    arrays = {"w": np.float32([w]), "w/Momentum": np.float32([momentum])}
    return write_tensors(path, dict(arrays, global_step=np.int64(step)))


def test_half_of_an_accumulated_gradient_does_not_stay(tmp_path):
    path = write(tmp_path / "model", 1.0, 3.0, 1)
    one, optimizer = variable("w", 0), momentum(gradient_accumulation_steps=2)
    train(optimizer, one, 1000.0)
    load_v1_checkpoint(path, {"w": one}, optimizer)
    for _ in range(2):
        train(optimizer, one)
    # momentum = 0.9 * 3 + 1, w = 1 - 0.1 * momentum
    np.testing.assert_allclose(optimizer.get_slot(one, "momentum").numpy(), [3.7], rtol=1e-6)
    np.testing.assert_allclose(one.numpy(), [0.63], rtol=1e-6)


def test_averages_begin_with_what_was_loaded(tmp_path):
    path = write(tmp_path / "model", 1.0, 0.0, 9)
    one, optimizer = variable("w", 5), momentum(use_ema=True, ema_momentum=0.5)
    load_v1_checkpoint(path, {"w": one}, optimizer)
    train(optimizer, one, 0.0)
    assert optimizer._model_variables_moving_average[0].numpy() == [1]


def test_an_optimizer_that_is_built_for_fewer_variables(tmp_path):
    one, other, optimizer = variable("w", 0), variable("x", 0), momentum()
    train(optimizer, one)
    with pytest.raises(ValueError, match="built for 1 variables, and here are 2"):
        save_v1_checkpoint(tmp_path / "model", {"w": one, "x": other}, optimizer)
