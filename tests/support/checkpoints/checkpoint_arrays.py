"""Arrays of many dtypes, and functions that write checkpoints of arrays and compare them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
from tests.tools import record_data

v1 = tf.compat.v1

DATA = Path(record_data.DATA)
RECORDED = ("adam_tf115", "adam_tf115_v1_format", "optimize_loss_tf115", "partitioned_tf115")
ARRAYS = {
    "a/bool": np.array([True, False]),
    "a/double": np.linspace(0, 1, 6).reshape(2, 3),
    "a/half": np.array(1.5, np.float16),
    "bytes": np.array([b"one\0", b""], dtype=object),
    "complex": np.array([1 + 2j], np.complex64),
    "empty": np.zeros([0, 3], np.float32),
    "int8": np.arange(-3, 3, dtype=np.int8),
    "step": np.array(7, np.int64),
}


def save_with_tensorflow(prefix, arrays, sharded=False, version=v1.train.SaverDef.V2):
    """Saves `arrays` as variables with TensorFlow's Saver; returns the checkpoint's path."""
    with tf.Graph().as_default(), v1.Session() as sess:
        devices = ["/cpu:0"] * len(arrays)
        for device, (name, value) in zip(devices, sorted(arrays.items())):
            with tf.device(device):
                v1.get_variable(name, initializer=value, use_resource=False)
        sess.run(v1.global_variables_initializer())
        saver = v1.train.Saver(sharded=sharded, write_version=version, save_relative_paths=True)
        return saver.save(sess, str(prefix), write_meta_graph=False)


def write(prefix, arrays, **options):
    with CheckpointWriter(prefix, **options) as writer:
        for name, value in arrays.items():
            writer.add(name, value)


def assert_holds(path, arrays):
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.tensors) == sorted(arrays)
    for name, value in arrays.items():
        value = np.asarray(value)
        info, found = checkpoint.tensors[name], checkpoint.read(name)
        assert info.shape == value.shape
        assert info.dtype == ("string" if value.dtype == object else tf.as_dtype(value.dtype).name)
        assert found.dtype == value.dtype and np.array_equal(found, value), name


def message_of(path):
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files_in(folder):
    return sorted(str(path.relative_to(str(folder))) for path in Path(str(folder)).rglob("*"))


def copy_recorded(name, folder):
    shutil.copy(str(DATA / (name + ".index")), str(folder))
    return Path(str(shutil.copy(str(DATA / (name + ".data-00000-of-00001")), str(folder))))
