"""Tests of `contrib.learn.datasets.mnist`, with small files in MNIST's format."""

import gzip
import struct

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat.contrib.learn.datasets import mnist
from tests.contrib.pieces import ORIGINS, OURS, piece

v1 = tf.compat.v1
RANDOM = np.random.RandomState(0)
IMAGES = {
    "train": RANDOM.randint(256, size=[30, 3, 2]),
    "t10k": RANDOM.randint(256, size=[7, 3, 2]),
}
LABELS = {"train": RANDOM.randint(10, size=[30]), "t10k": RANDOM.randint(10, size=[7])}


def write(path, magic, array):
    header = struct.pack(f">{1 + array.ndim}I", magic, *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


@pytest.fixture
def folder(tmp_path):
    for part in IMAGES:
        write(tmp_path / f"{part}-images-idx3-ubyte.gz", 2051, IMAGES[part])
        write(tmp_path / f"{part}-labels-idx1-ubyte.gz", 2049, LABELS[part])
    return tmp_path


def read(origin, folder, **arguments):
    arguments = dict({"validation_size": 5, "seed": 3}, **arguments)
    return piece(origin, "learn.datasets.mnist.read_data_sets")(str(folder), **arguments)


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_three_parts(origin, folder):
    data = read(origin, folder)
    assert [part.num_examples for part in data] == [25, 5, 7]
    pixels = IMAGES["train"].reshape(30, 6).astype(np.float32) * np.float32(1 / 255)
    np.testing.assert_array_equal(data.validation.images, pixels[:5])
    np.testing.assert_array_equal(data.train.images, pixels[5:])
    np.testing.assert_array_equal(data.train.labels, LABELS["train"][5:])
    np.testing.assert_array_equal(data.test.labels, LABELS["t10k"])
    assert (data.test.images.dtype, data.test.labels.dtype) == (np.float32, np.uint8)


@pytest.mark.parametrize("origin", ORIGINS)
def test_forms_of_images_and_labels(origin, folder):
    data = read(origin, folder, one_hot=True, dtype=tf.uint8, reshape=False, validation_size=0)
    np.testing.assert_array_equal(data.train.images, IMAGES["train"][..., None])
    np.testing.assert_array_equal(data.train.labels, np.eye(10)[LABELS["train"]])
    assert (data.train.images.dtype, data.train.labels.dtype) == (np.uint8, np.float64)


def batches(data, shuffle):
    found = []
    for size in (4, 11, 13, 25, 2):
        found += [*data.train.next_batch(size, shuffle=shuffle), data.train.epochs_completed]
        found += data.test.next_batch(3, shuffle=shuffle)
    return found


@pytest.mark.parametrize("origin", ORIGINS)
def test_batches_in_order(origin, folder):
    found = batches(read(origin, folder), shuffle=False)
    labels = np.concatenate(list(found[1::5]))
    np.testing.assert_array_equal(labels, np.resize(LABELS["train"][5:], 55))
    assert found[2::5] == [0, 0, 1, 2, 2]


@pytest.mark.parametrize("origin", ORIGINS)
def test_each_epoch_has_its_own_order(origin, folder):
    train = read(origin, folder).train
    epochs = []
    for _ in range(3):
        parts = [train.next_batch(5) for _ in range(5)]
        epochs.append(np.concatenate([images for images, _ in parts]))
    order = np.arange(25)
    np.random.RandomState(3).shuffle(order)
    np.testing.assert_array_equal(epochs[0], read(origin, folder).train.images[order])
    rows = [sorted(map(tuple, epoch)) for epoch in epochs]
    assert rows[0] == rows[1] == rows[2]
    assert not np.array_equal(epochs[0], epochs[1])


@pytest.mark.contrib
@pytest.mark.parametrize("seed, global_seed", [(3, None), (None, 7), (3, 7)])
def test_the_batches_of_contrib(seed, global_seed, folder):
    found = []
    for origin in (OURS, "tf"):
        with tf.Graph().as_default():
            v1.set_random_seed(global_seed)
            found.append(batches(read(origin, folder, seed=seed), shuffle=True))
    for one, other in zip(*found):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("origin", ORIGINS)
def test_fake_data(origin, folder):
    data = read(origin, folder / "missing", fake_data=True, one_hot=True)
    images, labels = data.train.next_batch(2, fake_data=True)
    assert np.array_equal(images, np.ones([2, 784])) and labels == [[1] + [0] * 9] * 2
    assert data.test.num_examples == 10000
    assert read(origin, folder, fake_data=True).test.next_batch(1, True)[1] == [0]


@pytest.mark.parametrize("origin", ORIGINS)
def test_refused_arguments(origin, folder):
    with pytest.raises(ValueError, match="Validation size should be between 0 and 30. Rec.*: 31."):
        read(origin, folder, validation_size=31)
    with pytest.raises(TypeError, match="Invalid image dtype tf.int32, expected uint8 or float32"):
        read(origin, folder, dtype=tf.int32)


def test_missing_files_are_named(folder):
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        read(OURS, folder)
    missing, rest = str(caught.value).split(" missing. Nothing is downloaded: ")
    assert missing == str(folder / "t10k-labels-idx1-ubyte.gz")
    assert f"train_dir={str(folder)!r}" in rest
    for name in mnist._FILES:
        assert name in rest
    with pytest.raises(FileNotFoundError, match="train-images.*, .*t10k-labels.* missing"):
        mnist.load_mnist(str(folder / "none"))


def test_damaged_files(folder):
    path = folder / "train-images-idx3-ubyte.gz"
    whole, raw = path.read_bytes(), gzip.decompress(path.read_bytes())
    huge = struct.pack(">4I", 2051, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    for content, message in (
        *((b"", "no complete MNIST image"), (whole[:-9], "no complete MNIST image")),
        *((raw, "no complete MNIST image"), (gzip.compress(raw[:9]), "no complete MNIST image")),
        (whole[:20] + bytes(9) + whole[29:], "no complete MNIST image"),
        (gzip.compress(raw[:-1]), "should have 180 bytes of data, but has 179"),
        (gzip.compress(huge), "bytes of data, but has 0"),
        (gzip.compress(b"\0" * 20), "Invalid magic number 0 in MNIST image file"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message) as caught:
            read(OURS, folder)
        assert str(path) in str(caught.value)


def test_images_that_do_not_fit():
    images = np.zeros([3, 2, 2, 1], np.uint8)
    with pytest.raises(ValueError, match=r"images.shape: \(3, 2, 2, 1\) labels.shape: \(2,\)"):
        mnist.DataSet(images, np.zeros([2]))
    with pytest.raises(ValueError, match="reshape=True needs images with one channel"):
        mnist.DataSet(np.zeros([3, 2, 2, 4], np.uint8), np.zeros([3]))
