"""Tables of `tf.contrib.lookup` that give unknown words ids by their hash."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple, Optional, Sequence

import tensorflow as tf

v1 = tf.compat.v1


class HasherSpec(NamedTuple):
    """The hash function of out-of-vocabulary buckets: "fasthash", "stronghash" or "legacy"."""

    hasher: str
    key: Optional[Sequence[int]]


FastHashSpec = HasherSpec("fasthash", None)


def StrongHashSpec(key: Sequence[int]) -> HasherSpec:
    """Returns a `HasherSpec` with a key of two unsigned integers.

    Raises:
      ValueError: the key has another length.
      TypeError: an element is not an integer.
    """
    if len(key) != 2:
        raise ValueError(f"key must have size 2, got {len(key)}.")
    if not all(isinstance(each, numbers.Integral) for each in key):
        raise TypeError(f"Invalid key {key}. Must be unsigned integer values.")
    return HasherSpec("stronghash", key)


class IdTableWithHashBuckets:
    """A table that gives other keys the id of a bucket, by their hash.

    Args:
      table: a table from strings or int64 to int64, or None if there are buckets only.
      num_oov_buckets: the number of buckets. Their ids begin with the size of the table.
      hasher_spec: a `HasherSpec`.
      name: the name of the table.
      key_dtype: the dtype of the keys: tf.string or an integer.

    Raises:
      ValueError: there is neither a table nor a bucket, or the hash function is unknown.
      TypeError: dtypes do not fit, or `hasher_spec` has another class.
    """

    def __init__(
        self,
        table: Any,
        num_oov_buckets: int,
        hasher_spec: HasherSpec = FastHashSpec,
        name: Optional[str] = None,
        key_dtype: Optional[Any] = None,
    ) -> None:
        if table is None and num_oov_buckets <= 0:
            raise ValueError("oov_buckets must be > 0 if no table is supplied.")
        if not isinstance(hasher_spec, HasherSpec):
            raise TypeError(f"hasher_spec must be of type HasherSpec, got {hasher_spec}")
        if hasher_spec.hasher not in ("fasthash", "stronghash", "legacy"):
            raise ValueError(f"Unknown hasher {hasher_spec.hasher}")
        self.key_dtype = tf.as_dtype(key_dtype or (tf.string if table is None else table.key_dtype))
        check_key_dtype(self.key_dtype)
        if table is not None and table.key_dtype.is_integer != self.key_dtype.is_integer:
            expected = "integer" if self.key_dtype.is_integer else "non-integer"
            raise TypeError(f"Invalid key dtype, expected {expected} but got {table.key_dtype}.")
        if table is not None and table.value_dtype != tf.int64:
            raise TypeError(
                f"Invalid value dtype, expected {tf.int64} but got {table.value_dtype}."
            )
        self.value_dtype = tf.int64
        self.name = name or ("hash_bucket" if table is None else table.name)
        self._table, self._buckets, self._hasher = table, num_oov_buckets, hasher_spec

    @property
    def initializer(self) -> Any:
        """The operation that initializes the table."""
        return tf.no_op() if self._table is None else self._table.initializer

    @property
    def init(self) -> Any:
        """The operation that initializes the table."""
        return self.initializer

    @property
    def resource_handle(self) -> Any:
        """The resource of the table, or None if there are buckets only."""
        return None if self._table is None else self._table.resource_handle

    def size(self, name: Optional[str] = None) -> tf.Tensor:
        """Returns the number of ids."""
        with v1.name_scope(name, "size"):
            return self._first_bucket() + self._buckets

    def lookup(self, keys: Any, name: Optional[str] = None) -> Any:
        """Returns the ids of a tensor of keys, which may be sparse.

        Raises:
          TypeError: the keys have another dtype.
        """
        if keys.dtype.base_dtype != self.key_dtype:
            raise TypeError(
                f"Signature mismatch. Keys must be dtype {self.key_dtype}, got {keys.dtype}."
            )
        with v1.name_scope(name, "lookup"):
            if isinstance(keys, tf.SparseTensor):
                return tf.SparseTensor(keys.indices, self._ids(keys.values), keys.dense_shape)
            return self._ids(keys)

    def _first_bucket(self):
        return tf.constant(0, tf.int64) if self._table is None else self._table.size()

    def _ids(self, keys):
        if self._table is not None:
            known = tf.cast(keys, tf.int64) if self.key_dtype.is_integer else keys
            ids = self._table.lookup(known)
            if not self._buckets:
                return ids
        buckets = self._first_bucket() + self._hash(keys)
        if self._table is None:
            return buckets
        return tf.compat.v2.where(tf.not_equal(ids, self._table.default_value), ids, buckets)

    def _hash(self, keys):
        texts = tf.strings.as_string(keys) if self.key_dtype.is_integer else keys
        if self._hasher.hasher == "fasthash":
            return tf.strings.to_hash_bucket_fast(texts, self._buckets)
        if self._hasher.hasher == "stronghash":
            return tf.strings.to_hash_bucket_strong(texts, self._buckets, self._hasher.key)
        return v1.string_to_hash_bucket(texts, self._buckets)


def check_key_dtype(key_dtype: Any) -> None:
    """Raises a TypeError unless keys of this dtype can be looked up."""
    if not (key_dtype.is_integer or key_dtype.base_dtype == tf.string):
        raise TypeError("Only integer and string keys are supported.")
