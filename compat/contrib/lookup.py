"""Tables from words to ids, and back, of `tf.contrib.lookup`.

In graphs, `tf.compat.v1.tables_initializer` initializes the tables.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from .hash_buckets import (
    FastHashSpec,
    HasherSpec,
    IdTableWithHashBuckets,
    StrongHashSpec,
    check_key_dtype,
)

__all__ = [
    "FastHashSpec",
    "HashTable",
    "HasherSpec",
    "IdTableWithHashBuckets",
    "StrongHashSpec",
    "TextFileIdTableInitializer",
    "TextFileStringTableInitializer",
    "index_table_from_file",
    "index_table_from_tensor",
    "index_to_string",
    "index_to_string_table_from_file",
    "index_to_string_table_from_tensor",
    "string_to_index",
]

v1 = tf.compat.v1
_LINE_NUMBER = tf.lookup.TextFileIndex.LINE_NUMBER
_WHOLE_LINE = tf.lookup.TextFileIndex.WHOLE_LINE


class HashTable(v1.lookup.StaticHashTable):
    """A table that does not change after its initialization.

    Args:
      initializer: a `tf.lookup.KeyValueTensorInitializer` or `tf.lookup.TextFileInitializer`.
      default_value: the value of other keys.
      shared_name: must be None.
      name: the name of the operation.

    Raises:
      ValueError: `shared_name` is given.
    """

    def __init__(
        self,
        initializer: Any,
        default_value: Any,
        shared_name: None = None,
        name: Optional[str] = None,
    ) -> None:
        if shared_name is not None:
            raise ValueError(
                f"shared_name must be None: TensorFlow 2 chooses it. Got: {shared_name!r}"
            )
        super().__init__(initializer, default_value, name=name)

    @property
    def init(self) -> Any:
        """The operation that initializes the table."""
        return self.initializer


def TextFileIdTableInitializer(
    filename: Any,
    key_column_index: int = _WHOLE_LINE,
    value_column_index: int = _LINE_NUMBER,
    vocab_size: Optional[int] = None,
    delimiter: str = "\t",
    name: Optional[str] = "text_file_id_table_init",
    key_dtype: Any = tf.string,
) -> Any:
    """Returns the `tf.lookup.TextFileInitializer` of a table from words to ids.

    Args:
      filename: the path of a file with a word in each line.
      key_column_index: the column of the key, or a `tf.lookup.TextFileIndex`.
      value_column_index: the column of the value, or a `tf.lookup.TextFileIndex`.
      vocab_size: the number of lines, if it is known.
      delimiter: the character between columns.
      name: the name of the operation.
      key_dtype: tf.string or tf.int64.
    """
    return tf.lookup.TextFileInitializer(
        *(filename, key_dtype, key_column_index, tf.int64, value_column_index),
        *(vocab_size, delimiter, name),
    )


def TextFileStringTableInitializer(
    filename: Any,
    key_column_index: int = _LINE_NUMBER,
    value_column_index: int = _WHOLE_LINE,
    vocab_size: Optional[int] = None,
    delimiter: str = "\t",
    name: Optional[str] = "text_file_string_table_init",
) -> Any:
    """Returns the `tf.lookup.TextFileInitializer` of a table from ids to words.

    The arguments are those of `TextFileIdTableInitializer`.
    """
    return tf.lookup.TextFileInitializer(
        *(filename, tf.int64, key_column_index, tf.string, value_column_index),
        *(vocab_size, delimiter, name),
    )


def index_table_from_file(
    vocabulary_file: Optional[Any] = None,
    num_oov_buckets: int = 0,
    vocab_size: Optional[int] = None,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    key_dtype: Any = tf.string,
    name: Optional[str] = None,
    key_column_index: int = _WHOLE_LINE,
    value_column_index: int = _LINE_NUMBER,
    delimiter: str = "\t",
) -> Any:
    """Returns a table from the words of a file to the numbers of their lines.

    Args:
      vocabulary_file: the path of a file with a word in each line.
      num_oov_buckets: the number of ids for other words.
      vocab_size: the number of lines, if it is known.
      default_value: the id of other words, if `num_oov_buckets` is 0.
      hasher_spec: the hash function for other words.
      key_dtype: the dtype of the words: tf.string or an integer.
      name: the name scope of the operations.
      key_column_index: the column of the word, or a `tf.lookup.TextFileIndex`.
      value_column_index: the column of the id, or a `tf.lookup.TextFileIndex`.
      delimiter: the character between columns.

    Raises:
      ValueError: there is no file name, or a number is out of range.
      TypeError: `key_dtype` is neither tf.string nor an integer.
    """
    _check_file(vocabulary_file, vocab_size, f" vocabulary_file: {vocabulary_file}")
    _check_buckets(num_oov_buckets)
    check_key_dtype(key_dtype)
    with v1.name_scope(name, "string_to_index"):
        table = v1.lookup.StaticHashTable(
            TextFileIdTableInitializer(
                *(vocabulary_file, key_column_index, value_column_index, vocab_size, delimiter),
                *("table_init", tf.int64 if key_dtype.is_integer else key_dtype),
            ),
            default_value,
        )
        return _with_buckets(table, num_oov_buckets, hasher_spec, key_dtype)


def index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: HasherSpec = FastHashSpec,
    dtype: Any = tf.string,
    name: Optional[str] = None,
) -> Any:
    """Returns a table from the words of a tensor to their positions.

    Args:
      mapping: a tensor or list of words.
      num_oov_buckets: the number of ids for other words.
      default_value: the id of other words, if `num_oov_buckets` is 0.
      hasher_spec: the hash function for other words.
      dtype: the dtype of the words: tf.string or an integer.
      name: the name scope of the operations.

    Raises:
      ValueError: `mapping` is None or has another dtype, or `num_oov_buckets` is negative.
      TypeError: `dtype` is neither tf.string nor an integer.
    """
    _check_mapping(mapping)
    _check_buckets(num_oov_buckets)
    check_key_dtype(dtype)
    with v1.name_scope(name, "string_to_index"):
        keys = tf.convert_to_tensor(mapping)
        if keys.dtype.is_integer != dtype.is_integer:
            expected = "integer" if dtype.is_integer else "non-integer"
            raise ValueError(f"Expected {expected}, got {keys.dtype}.")
        if not dtype.is_integer and keys.dtype != dtype:
            raise ValueError(f"Expected {dtype}, got {keys.dtype}.")
        keys = tf.cast(keys, tf.int64) if dtype.is_integer else keys
        values = tf.range(tf.size(keys, out_type=tf.int64))
        initializer = tf.lookup.KeyValueTensorInitializer(keys, values, name="table_init")
        table = v1.lookup.StaticHashTable(initializer, default_value)
        return _with_buckets(table, num_oov_buckets, hasher_spec, dtype)


def index_to_string_table_from_file(
    vocabulary_file: Any,
    vocab_size: Optional[int] = None,
    default_value: str = "UNK",
    name: Optional[str] = None,
    key_column_index: int = _LINE_NUMBER,
    value_column_index: int = _WHOLE_LINE,
    delimiter: str = "\t",
) -> Any:
    """Returns a table from the numbers of lines of a file to their words.

    Args:
      vocabulary_file: the path of a file with a word in each line.
      vocab_size: the number of lines, if it is known.
      default_value: the word of other numbers.
      name: the name scope of the operations.
      key_column_index: the column of the id, or a `tf.lookup.TextFileIndex`.
      value_column_index: the column of the word, or a `tf.lookup.TextFileIndex`.
      delimiter: the character between columns.

    Raises:
      ValueError: there is no file name, or `vocab_size` is not positive.
    """
    _check_file(vocabulary_file, vocab_size)
    with v1.name_scope(name, "index_to_string"):
        initializer = TextFileStringTableInitializer(
            *(vocabulary_file, key_column_index, value_column_index, vocab_size, delimiter),
            "table_init",
        )
        return v1.lookup.StaticHashTable(initializer, default_value)


def index_to_string_table_from_tensor(
    mapping: Any, default_value: str = "UNK", name: Optional[str] = None
) -> Any:
    """Returns a table from positions to the words of a tensor.

    Args:
      mapping: a tensor or list of words.
      default_value: the word of other positions.
      name: the name scope of the operations.

    Raises:
      ValueError: `mapping` is None.
    """
    _check_mapping(mapping)
    with v1.name_scope(name, "index_to_string"):
        words = tf.convert_to_tensor(mapping, tf.string)
        keys = tf.range(tf.size(words, out_type=tf.int64))
        initializer = tf.lookup.KeyValueTensorInitializer(keys, words, name="table_init")
        return v1.lookup.StaticHashTable(initializer, default_value)


def string_to_index(
    tensor: Any, mapping: Any, default_value: int = -1, name: Optional[str] = None
) -> Any:
    """Looks words up in `index_table_from_tensor(mapping, default_value=default_value)`."""
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(
    tensor: Any, mapping: Any, default_value: str = "UNK", name: Optional[str] = None
) -> Any:
    """Looks ids up in `index_to_string_table_from_tensor(mapping, default_value)`."""
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)


def _with_buckets(table, number, hasher_spec, key_dtype):
    if not number:
        return table
    return IdTableWithHashBuckets(table, number, hasher_spec, key_dtype=key_dtype)


def _check_mapping(mapping):
    if mapping is None:
        raise ValueError("mapping must be specified.")


def _check_file(vocabulary_file, vocab_size, ending=""):
    if vocabulary_file is None or (isinstance(vocabulary_file, str) and not vocabulary_file):
        raise ValueError("vocabulary_file must be specified and must not be empty.")
    if vocab_size is not None and vocab_size < 1:
        raise ValueError(f"vocab_size must be greater than 0, got {vocab_size}.{ending}")


def _check_buckets(num_oov_buckets):
    if num_oov_buckets < 0:
        raise ValueError(f"num_oov_buckets must be greater or equal than 0, got {num_oov_buckets}.")
