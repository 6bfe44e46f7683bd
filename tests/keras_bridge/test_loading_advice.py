"""Tests that the advice for a Keras file that is passed as a checkpoint runs as it is printed."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import LazyAdamOptimizer
from legacy_opt.compat import to_keras
from tests.support.checkpoints.checkpoint_arrays import message_of
from tests.support.processes import programs

pytestmark = pytest.mark.every_lane


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize("ending", ["h5", "keras"])
def test_the_advice_runs(ending, tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(to_keras(LazyAdamOptimizer(0.1)), tf.keras.losses.MeanSquaredError())
    model.fit(np.ones([4, 2], np.float32), np.ones([4, 1], np.float32), verbose=0)
    path = str(tmp_path / f"model.{ending}")
    model.save(path)
    advice = message_of(path).rpartition(" by: ")[2]
    checked = advice + "\nprint(type(model.optimizer).__name__, model.count_params())"
    done = programs.run("-c", checked, seconds=120)
    assert done.stdout == "BridgedOptimizer 3\n", done.stderr
