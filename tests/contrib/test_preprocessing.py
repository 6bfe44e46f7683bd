"""Tests of `contrib.learn.preprocessing`."""

import os
import pickle

import numpy as np
import pytest

from legacy_opt.compat.contrib.learn import preprocessing
from tests.contrib.pieces import ORIGINS, OURS, piece

TEXTS = ["The cat's hat, the HTTPServer", "cat cat the a-b", "nothing else", "über 7"]


def module(origin):
    return piece(origin, "learn.preprocessing")


def by_letters(texts):
    for text in texts:
        yield list(text)


@pytest.mark.parametrize("origin", ORIGINS)
def test_tokenizer(origin):
    assert list(module(origin).tokenizer(TEXTS)) == [
        ["The", "cat's", "hat", "the", "HTTP", "Server"],
        ["cat", "cat", "the", "a-b"],
        ["nothing", "else"],
        ["über", "7"],
    ]
    assert list(module(origin).tokenizer(["aB CamelCase don't"])) == [
        ["aB", "Camel", "Case", "don't"]
    ]


@pytest.mark.parametrize("origin", ORIGINS)
def test_ids_in_the_order_of_words(origin):
    processor = module(origin).VocabularyProcessor(3)
    ids = np.array(list(processor.fit_transform(TEXTS)))
    assert ids.tolist() == [[1, 2, 3], [7, 7, 4], [9, 10, 0], [11, 12, 0]]
    assert ids.dtype == np.int64
    assert len(processor.vocabulary_) == 13
    assert np.array(list(processor.transform(["dog the"]))).tolist() == [[0, 4, 0]]
    assert list(processor.reverse([[1, 0, 4]])) == ["The <UNK> the"]


@pytest.mark.parametrize("origin", ORIGINS)
def test_rare_words(origin):
    processor = module(origin).VocabularyProcessor(4, min_frequency=1)
    assert np.array(list(processor.fit_transform(TEXTS)))[1].tolist() == [1, 1, 2, 0]
    assert len(processor.vocabulary_) == 3


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_vocabulary_and_a_tokenizer(origin):
    vocabulary = module(origin).CategoricalVocabulary(unknown_token="?")
    vocabulary.get("b")
    processor = module(origin).VocabularyProcessor(3, 0, vocabulary, by_letters)
    assert [row.tolist() for row in processor.fit_transform(["abc", "dd"])] == [
        [2, 1, 3],
        [4, 4, 0],
    ]
    assert processor.vocabulary_ is vocabulary


@pytest.mark.parametrize("origin", ORIGINS)
def test_trim_keeps_a_range_of_frequencies(origin):
    vocabulary = module(origin).CategoricalVocabulary()
    for word, count in {"d": 2, "c": 3, "b": 2, "a": 9, "e": 1}.items():
        vocabulary.add(word, count)
    vocabulary.add("<UNK>", 100)
    vocabulary.trim(1, max_frequency=9)
    vocabulary.freeze()
    assert [vocabulary.get(each) for each in "abcde"] == [0, 2, 1, 3, 0]
    assert [vocabulary.reverse(number) for number in range(4)] == ["<UNK>", "c", "b", "d"]
    vocabulary.freeze(False)
    assert vocabulary.get("new") == 4
    no_reverse = module(origin).CategoricalVocabulary(support_reverse=False)
    assert no_reverse.get("x") == 1
    with pytest.raises(ValueError, match="support_reverse"):
        no_reverse.reverse(1)


def check(restored):
    assert type(restored) is preprocessing.VocabularyProcessor
    assert [row.tolist() for row in restored.transform(["cat dog"])] == [[1, 0, 0, 0]]
    assert list(restored.reverse([[2]])) == ["the"]
    assert (restored.max_document_length, restored.min_frequency) == (4, 1)


@pytest.mark.parametrize("origin", ORIGINS)
def test_save_and_restore(origin, tmp_path):
    path = str(tmp_path / "vocabulary")
    processor = module(origin).VocabularyProcessor(4, min_frequency=1).fit(TEXTS)
    processor.save(path)
    check(preprocessing.VocabularyProcessor.restore(path))


def as_contrib(content):
    """Returns a pickle in which our module has the names that it had in `tf.contrib`."""
    home, old = b"legacy_opt.compat.contrib.learn.preprocessing", b"preprocessing"
    for name, file in (
        *((b"VocabularyProcessor", b"text"), (b"tokenizer", b"text")),
        (b"CategoricalVocabulary", b"categorical_vocabulary"),
    ):
        new = b"ctensorflow.contrib.learn.python.learn." + old + b"." + file + b"\n" + name
        assert b"c" + home + b"\n" + name in content
        content = content.replace(b"c" + home + b"\n" + name, new)
    return content


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_restore_reads_the_files_of_contrib(protocol, tmp_path):
    """With protocol 0, the one of Python 2, objects are made by copy_reg._reconstructor."""
    processor = preprocessing.VocabularyProcessor(4, min_frequency=1).fit(TEXTS)
    path = tmp_path / "vocabulary"
    path.write_bytes(as_contrib(pickle.dumps(processor, protocol)))
    check(preprocessing.VocabularyProcessor.restore(str(path)))


def test_restore_needs_the_tokenizer_of_the_file(tmp_path):
    path = str(tmp_path / "vocabulary")
    preprocessing.VocabularyProcessor(2, tokenizer_fn=by_letters).fit(["ab"]).save(path)
    message = r"names the tokenizer .*test_preprocessing\.by_letters\. .*tokenizer_fn="
    with pytest.raises(ValueError, match=message):
        preprocessing.VocabularyProcessor.restore(path)
    restored = preprocessing.VocabularyProcessor.restore(path, tokenizer_fn=by_letters)
    assert [row.tolist() for row in restored.transform(["ba"])] == [[2, 1]]


class Running:
    """A pickle of this object makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_restore_runs_nothing(tmp_path):
    made, path = str(tmp_path / "made"), tmp_path / "vocabulary"
    processor = preprocessing.VocabularyProcessor(2)
    processor.vocabulary_ = Running(made)
    for content in pickle.dumps(Running(made)), pickle.dumps(processor):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="no VocabularyProcessor that can be read"):
            preprocessing.VocabularyProcessor.restore(str(path))
        assert not os.path.exists(made)
    pickle.loads(pickle.dumps(Running(made)))
    assert os.path.exists(made)


def test_restore_leaves_our_classes_alone(tmp_path):
    """A pickle may set attributes of the classes that it names."""
    path = tmp_path / "vocabulary"
    home = preprocessing.__name__.encode()
    path.write_bytes(b"c" + home + b"\nVocabularyProcessor\n(N(S'fit'\nI1\ndtb.")
    with pytest.raises(ValueError, match="no VocabularyProcessor that can be read"):
        preprocessing.VocabularyProcessor.restore(str(path))
    assert callable(preprocessing.VocabularyProcessor.fit)


@pytest.mark.parametrize(
    "attribute, value",
    [("max_document_length", "3"), ("_tokenizer", 3), ("vocabulary_", {}), ("min_frequency", [])],
)
def test_restore_checks_attributes(attribute, value, tmp_path):
    path = tmp_path / "vocabulary"
    processor = preprocessing.VocabularyProcessor(3)
    setattr(processor, attribute, value)
    path.write_bytes(pickle.dumps(processor))
    with pytest.raises(ValueError, match="no VocabularyProcessor that can be read"):
        preprocessing.VocabularyProcessor.restore(str(path))


def test_restore_of_damaged_files(tmp_path):
    path = tmp_path / "vocabulary"
    content = pickle.dumps(preprocessing.VocabularyProcessor(3).fit(TEXTS), 2)
    for damaged in b"", content[:-1], content[: len(content) // 2], b"no pickle":
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="vocabulary.* has no VocabularyProcessor that can be"):
            preprocessing.VocabularyProcessor.restore(str(path))


@pytest.mark.contrib
def test_contrib_and_we_give_the_same_ids():
    words = ["a", "b", "c", "d", "e", "f", "g", "h"]
    random = np.random.RandomState(0)
    texts = [" ".join(random.choice(words, size=9, p=np.arange(8) / 28)) for _ in range(50)]
    rows = [
        list(module(origin).VocabularyProcessor(7, 30).fit_transform(texts))
        for origin in (OURS, "tf")
    ]
    assert np.array_equal(*rows)
