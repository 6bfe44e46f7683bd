"""The MNIST files of `tf.examples.tutorials.mnist.input_data`, read from a folder."""

from __future__ import annotations

import functools
import gzip
import operator
import os
import struct
import zlib
from typing import Any, Callable, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

__all__ = [
    "DataSet",
    "Datasets",
    "dense_to_one_hot",
    "extract_images",
    "extract_labels",
    "load_mnist",
    "read_data_sets",
]

_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


class Datasets(NamedTuple):
    """The three parts of a data set."""

    train: Any
    validation: Any
    test: Any


class DataSet:
    """Images and labels, in batches.

    The order of the batches comes from NumPy's global random numbers, which the constructor seeds.

    `images` is a uint8 array of shape [examples, rows, columns, 1]. With `fake_data`, images and
    labels are not read, and only `next_batch(fake_data=True)` may be called. The other arguments
    are those of `read_data_sets`. `epochs_completed` is how often all examples have been returned.
    """

    images = property(operator.attrgetter("_images"))
    labels = property(operator.attrgetter("_labels"))
    num_examples = property(operator.attrgetter("_num_examples"))
    epochs_completed = property(operator.attrgetter("_epochs_completed"))

    def __init__(
        self,
        images: Any,
        labels: Any,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: Any = tf.float32,
        reshape: bool = True,
        seed: Optional[int] = None,
    ) -> None:
        graph_seed, operation_seed = tf.compat.v1.get_seed(seed)
        np.random.seed(graph_seed if seed is None else operation_seed)
        dtype = tf.as_dtype(dtype)
        if dtype not in (tf.uint8, tf.float32):
            raise TypeError(f"Invalid image dtype {dtype!r}, expected uint8 or float32")
        self._num_examples = 10000 if fake_data else len(images)
        self.one_hot = one_hot
        if not fake_data:
            images = _prepared(images, labels, dtype, reshape)
        self._images, self._labels = images, labels
        self._epochs_completed = 0
        self._index_in_epoch = 0

    def next_batch(
        self, batch_size: int, fake_data: bool = False, shuffle: bool = True
    ) -> Tuple[Any, Any]:
        """Returns the next images and labels.

        Args:
          batch_size: the number of examples, at most `num_examples`.
          fake_data: whether to return lists with images of ones, and the label 0.
          shuffle: whether each epoch has its own order.
        """
        if fake_data:
            label = [1] + [0] * 9 if self.one_hot else 0
            return [[1] * 784 for _ in range(batch_size)], [label for _ in range(batch_size)]
        start, end = self._index_in_epoch, self._index_in_epoch + batch_size
        if self._epochs_completed == 0 and start == 0 and shuffle:
            self._shuffle()
        if end <= self._num_examples:
            self._index_in_epoch = end
            return self._images[start:end], self._labels[start:end]
        rest_of_images, rest_of_labels = self._images[start:], self._labels[start:]
        self._epochs_completed += 1
        if shuffle:
            self._shuffle()
        self._index_in_epoch = end - self._num_examples
        return (
            np.concatenate([rest_of_images, self._images[: self._index_in_epoch]]),
            np.concatenate([rest_of_labels, self._labels[: self._index_in_epoch]]),
        )

    def _shuffle(self):
        order = np.arange(self._num_examples)
        np.random.shuffle(order)
        self._images, self._labels = self._images[order], self._labels[order]


def _prepared(images: np.ndarray, labels: np.ndarray, dtype: tf.DType, reshape: bool) -> np.ndarray:
    if len(images) != len(labels):
        raise ValueError(f"images.shape: {images.shape} labels.shape: {labels.shape}")
    if reshape:
        if images.shape[3] != 1:
            raise ValueError(f"reshape=True needs images with one channel, got {images.shape}")
        images = images.reshape(len(images), images.shape[1] * images.shape[2])
    if dtype == tf.float32:
        return np.multiply(images.astype(np.float32), 1.0 / 255.0)
    return images


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = tf.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: Optional[int] = None,
    source_url: Optional[str] = None,
) -> Datasets:
    """Reads the four files of MNIST, which have to be in a folder already.

    Args:
      train_dir: the folder.
      fake_data: whether to read nothing, for `next_batch(fake_data=True)`.
      one_hot: whether labels are arrays of ten numbers instead of digits.
      dtype: tf.float32 for values from 0 to 1, or tf.uint8 for values from 0 to 255.
      reshape: whether an image is an array of 784 numbers instead of [28, 28, 1].
      validation_size: the number of training examples that become the validation set.
      seed: the seed of the order of batches.
      source_url: ignored, because nothing is downloaded.
    """
    if fake_data:
        fake = functools.partial(DataSet, [], [], fake_data=True, one_hot=one_hot)
        return Datasets(*(fake(dtype=dtype, seed=seed) for _ in Datasets._fields))
    paths = [os.path.join(train_dir, name) for name in _FILES]
    missing = [path for path in paths if not tf.io.gfile.exists(path)]
    if missing:
        raise FileNotFoundError(
            f"{', '.join(missing)} missing. Nothing is downloaded: put the four files of MNIST "
            f"({', '.join(_FILES)}) into the folder train_dir={train_dir!r}."
        )
    # `_FILES` alternates between images and labels.
    images, test_images = [_read(path, extract_images) for path in paths[::2]]
    labels, test_labels = [_read(path, extract_labels, one_hot) for path in paths[1::2]]
    if not 0 <= validation_size <= len(images):
        raise ValueError(
            f"Validation size should be between 0 and {len(images)}. Received: {validation_size}."
        )
    parts = (
        (images[validation_size:], labels[validation_size:]),
        (images[:validation_size], labels[:validation_size]),
        (test_images, test_labels),
    )
    return Datasets(*[DataSet(*part, dtype=dtype, reshape=reshape, seed=seed) for part in parts])


def load_mnist(train_dir: str = "MNIST-data") -> Datasets:
    """Returns `read_data_sets(train_dir)`."""
    return read_data_sets(train_dir)


def _read(path: str, extract: Callable[..., np.ndarray], *arguments: Any) -> np.ndarray:
    with tf.io.gfile.GFile(path, "rb") as file:
        return extract(file, *arguments)


def extract_images(f: Any) -> np.ndarray:
    """Returns a uint8 array of shape [images, rows, columns, 1] from a compressed file."""
    return _idx(f, magic=2051, axes=3, title="image")[..., None]


def extract_labels(f: Any, one_hot: bool = False, num_classes: int = 10) -> np.ndarray:
    """Returns an array of labels from a compressed file: uint8 digits, or one-hot float64 rows."""
    labels = _idx(f, magic=2049, axes=1, title="label")
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def dense_to_one_hot(labels_dense: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns a float64 array with a row for each label."""
    return np.eye(num_classes)[labels_dense.ravel()]


def _idx(file: Any, magic: int, axes: int, title: str) -> np.ndarray:
    """Returns the array of a compressed file: a magic number, the length of each axis, bytes."""
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            found, *shape = struct.unpack(f">{1 + axes}I", stream.read(4 + 4 * axes))
            content = stream.read()
    except (EOFError, OSError, struct.error, zlib.error) as error:
        raise ValueError(f"{file.name} is no complete MNIST {title} file: {error}") from error
    if found != magic:
        raise ValueError(f"Invalid magic number {found} in MNIST {title} file: {file.name}")
    size = functools.reduce(operator.mul, shape)
    if len(content) < size:
        raise ValueError(f"{file.name} should have {size} bytes of data, but has {len(content)}.")
    return np.frombuffer(content[:size], np.uint8).reshape(shape)
