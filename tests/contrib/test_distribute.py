"""Tests of `contrib.distribute`, on two devices that need not exist."""

import pytest
import tensorflow as tf

from tests.contrib.pieces import ORIGINS, piece

v1 = tf.compat.v1
# TensorFlow's own iterators in graphs warn.
pytestmark = pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
DEVICES = ["/cpu:0", "/cpu:1"]


def batches_of_replicas(strategy, steps=1):
    """Returns the batches that each replica gets, of a dataset of batches of two numbers."""
    config = v1.ConfigProto(device_count={"CPU": 2})
    dataset = tf.data.Dataset.range(12).batch(2)
    with v1.Session(config=config) as session:
        iterator = strategy.make_dataset_iterator(dataset)
        parts = strategy.experimental_local_results(iterator.get_next())
        session.run(iterator.initialize())
        return [[each.tolist() for each in session.run(parts)] for _ in range(steps)]


@pytest.mark.parametrize("origin", ORIGINS)
def test_batches_are_per_replica(origin):
    with tf.Graph().as_default():
        strategy = piece(origin, "distribute.MirroredStrategy")(DEVICES)
        assert strategy.num_replicas_in_sync == 2
        assert batches_of_replicas(strategy, 2) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
        assert not strategy.extended._global_batch_size
        assert v1.distribute.MirroredStrategy(DEVICES).extended._global_batch_size  # unchanged


@pytest.mark.parametrize("origin", ORIGINS)
def test_numbers_of_gpus(origin):
    distribute = piece(origin, "distribute")
    with tf.Graph().as_default():
        gpus = [f"/replica:0/task:0/device:GPU:{index}" for index in range(2)]
        for arguments in {"num_gpus": 2}, {"num_gpus_per_worker": 2}:
            workers = distribute.MirroredStrategy(**arguments).extended.worker_devices
            assert [each.replace("/job:localhost", "") for each in workers] == gpus
        strategy = distribute.MirroredStrategy(num_gpus=0)
        (device,) = strategy.extended.worker_devices
        assert device.endswith("/device:CPU:0") and strategy.num_replicas_in_sync == 1
        assert batches_of_replicas(strategy) == [[[0, 1]]]
        with pytest.raises(ValueError):
            distribute.MirroredStrategy(DEVICES, num_gpus=2)
        with pytest.raises(ValueError):
            distribute.MirroredStrategy(num_gpus=2, num_gpus_per_worker=2)
