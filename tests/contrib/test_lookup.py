"""Tests of the names of `tf.contrib.lookup`."""

import numpy as np
import pytest
import tensorflow as tf

from tests.contrib.pieces import ORIGINS, OURS, piece, run

v1 = tf.compat.v1
WORDS = ["emerson", "lake", "palmer"]
KEYS = ["lake", "and", "palmer", "or"]


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(WORDS))
    return str(path)


def looked_up(origin, name, *arguments, keys=KEYS, **keywords):
    return run(
        lambda: piece(origin, "lookup." + name)(*arguments, **keywords).lookup(tf.constant(keys))
    ).tolist()


@pytest.mark.parametrize("origin", ORIGINS)
def test_words_of_a_file(origin, vocabulary):
    assert looked_up(origin, "index_table_from_file", vocabulary) == [1, -1, 2, -1]
    one = looked_up(origin, "index_table_from_file", vocabulary, num_oov_buckets=1)
    assert one == [1, 3, 2, 3]
    other = looked_up(origin, "index_table_from_file", vocabulary, 0, 2, 9)
    assert other == [1, 9, 9, 9]


@pytest.mark.parametrize("origin", ORIGINS)
def test_words_of_a_tensor(origin):
    assert looked_up(origin, "index_table_from_tensor", WORDS, 0, 7) == [1, 7, 2, 7]
    numbers = looked_up(
        *(origin, "index_table_from_tensor", [30, 10], 1), dtype=tf.int32, keys=[10, 11, 30]
    )
    assert numbers == [1, 2, 0]


@pytest.mark.parametrize("origin", ORIGINS)
def test_columns(origin, tmp_path):
    path = tmp_path / "columns.txt"
    path.write_text("7,lake\n5,palmer")
    columns = {"key_column_index": 1, "value_column_index": 0, "delimiter": ","}
    assert looked_up(origin, "index_table_from_file", str(path), **columns) == [7, -1, 5, -1]
    columns = {"key_column_index": 0, "value_column_index": 1, "delimiter": ","}
    found = looked_up(
        *(origin, "index_to_string_table_from_file", str(path)),
        keys=np.int64([5, 6]),
        **columns,
    )
    assert found == [b"palmer", b"UNK"]


@pytest.mark.parametrize("origin", ORIGINS)
def test_buckets(origin, vocabulary):
    """The hash functions are operations of TensorFlow."""
    strong = piece(origin, "lookup.StrongHashSpec")([5, 9])
    fast = piece(origin, "lookup.FastHashSpec")
    for spec, expected in (
        (fast, tf.strings.to_hash_bucket_fast),
        (strong, lambda keys, buckets: tf.strings.to_hash_bucket_strong(keys, buckets, [5, 9])),
    ):
        buckets = run(lambda: expected(tf.constant(KEYS), 100))  # noqa: B023
        for name, source in (
            *(("index_table_from_file", vocabulary), ("index_table_from_tensor", WORDS)),
        ):
            found = looked_up(origin, name, source, 100, hasher_spec=spec)
            assert found == [1, 3 + buckets[1], 2, 3 + buckets[3]]
    numbers = looked_up(
        *(origin, "index_table_from_tensor", [4], 100), dtype=tf.int32, keys=[4, 12]
    )
    bucket = run(lambda: tf.strings.to_hash_bucket_fast(["12"], 100))[0]
    assert numbers == [0, 1 + bucket]


@pytest.mark.parametrize("origin", ORIGINS)
def test_buckets_only_and_sparse_keys(origin):
    def build():
        table = piece(origin, "lookup.IdTableWithHashBuckets")(None, 10)
        keys = tf.SparseTensor([[0, 2]], ["and"], [2, 3])
        assert table.name == "hash_bucket" and table.resource_handle is None
        words = piece(origin, "lookup.index_table_from_tensor")(WORDS, 4)
        return table.lookup(keys), table.size(), words.size(), words.lookup(keys), words.initializer

    found, size, all_ids, known, _ = run(build)
    bucket = run(lambda: tf.strings.to_hash_bucket_fast(["and"], 10))
    assert (found.indices.tolist(), found.values, found.dense_shape.tolist()) == (
        *([[0, 2]], bucket, [2, 3]),
    )
    assert (size, all_ids) == (10, 7)
    assert 3 <= known.values[0] < 7


@pytest.mark.parametrize("origin", ORIGINS)
def test_words_of_ids(origin, vocabulary):
    def build():
        ids = tf.constant([2, 5, 0], tf.int64)
        from_file = piece(origin, "lookup.index_to_string_table_from_file")(vocabulary)
        from_tensor = piece(origin, "lookup.index_to_string_table_from_tensor")
        words = from_tensor(mapping=WORDS, default_value="?")
        return from_file.lookup(ids), words.lookup(ids)

    from_file, from_tensor = run(build)
    assert from_file.tolist() == [b"palmer", b"UNK", b"emerson"]
    assert from_tensor.tolist() == [b"palmer", b"?", b"emerson"]


@pytest.mark.parametrize("origin", ORIGINS)
def test_hash_table(origin, vocabulary):
    def build():
        table, of_ids, of_words = [
            piece(origin, f"lookup.{name}")
            for name in (
                "HashTable",
                "TextFileIdTableInitializer",
                "TextFileStringTableInitializer",
            )
        ]
        ids = table(of_ids(vocabulary), -5, name="ids")
        words = table(of_words(vocabulary), "?")
        initializers = v1.get_collection(v1.GraphKeys.TABLE_INITIALIZERS)
        assert initializers == [ids.init, words.init]
        assert ids.init is ids.initializer
        number = tf.constant([1, 3], tf.int64)
        return ids.lookup(tf.constant(KEYS)), words.lookup(number), ids.size()

    ids, words, size = run(build)
    assert (ids.tolist(), words.tolist(), size) == ([1, -5, 2, -5], [b"lake", b"?"], 3)


@pytest.mark.parametrize("origin", ORIGINS)
def test_words_that_occur_twice(origin):
    with pytest.raises(tf.errors.OpError, match="different value for same key"):
        looked_up(origin, "index_table_from_tensor", ["a", "a"])


@pytest.mark.parametrize("origin", ORIGINS)
def test_refused_arguments(origin):
    for name, arguments, error in (
        ("index_table_from_file", {}, ValueError),
        ("index_table_from_file", {"vocabulary_file": "x", "key_dtype": tf.float32}, TypeError),
        ("index_table_from_tensor", {"mapping": None}, ValueError),
        ("index_table_from_tensor", {"mapping": ["x"], "dtype": tf.int64}, ValueError),
        ("index_to_string_table_from_tensor", {"mapping": None}, ValueError),
        ("StrongHashSpec", {"key": [1]}, ValueError),
        ("IdTableWithHashBuckets", {"table": None, "num_oov_buckets": 0}, ValueError),
    ):
        with tf.Graph().as_default(), pytest.raises(error):
            piece(origin, "lookup." + name)(**arguments)
    with pytest.raises(TypeError):
        looked_up(origin, "index_table_from_tensor", WORDS, 1, keys=[1])


def test_what_only_we_refuse():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="shared_name must be None"):
        piece(OURS, "lookup.HashTable")(None, 1, shared_name="x")


def test_eager_or_in_a_function():
    with tf.Graph().as_default(), v1.Session() as session:
        table = piece(OURS, "lookup.index_table_from_tensor")(WORDS, 1)
        found = tf.function(table.lookup)(tf.constant(KEYS))
        session.run(v1.tables_initializer())
        assert session.run(found).tolist() == [1, 3, 2, 3]
