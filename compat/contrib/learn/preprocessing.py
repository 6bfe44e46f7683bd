"""Words as ids, as in `tf.contrib.learn.preprocessing`."""

from __future__ import annotations

import collections
import io
import pickle
import re
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional

import numpy as np
import tensorflow as tf

__all__ = ["CategoricalVocabulary", "VocabularyProcessor", "tokenizer"]

# Abbreviations, the first words of CamelCase, and words with apostrophes and hyphens.
_TOKEN = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|['\w\-]+")


def tokenizer(iterator: Iterable[str]) -> Iterator[List[str]]:
    """Yields the list of words of each text."""
    for value in iterator:
        yield _TOKEN.findall(value)


class CategoricalVocabulary:
    """Ids of categories, such as words, in the order in which the categories first occur.

    Args:
      unknown_token: the category with the id 0, which is also the id of all unknown categories.
      support_reverse: whether `reverse` can be called.
    """

    def __init__(self, unknown_token: Any = "<UNK>", support_reverse: bool = True) -> None:
        self._unknown_token = unknown_token
        self._support_reverse = support_reverse
        self._set_categories([])
        self._freq: Dict[Any, int] = {}
        self._freeze = False

    def _set_categories(self, categories: Iterable[Any]):
        categories = [self._unknown_token, *categories]
        self._mapping = {category: number for number, category in enumerate(categories)}
        if self._support_reverse:
            self._reverse_mapping = categories

    def __len__(self) -> int:
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """Stops adding categories, or, with `freeze=False`, adds them again."""
        self._freeze = freeze

    def get(self, category: Any) -> int:
        """Returns the id of a category. Adds a new category, unless the vocabulary is frozen."""
        if self._freeze or category in self._mapping:
            return self._mapping.get(category, 0)
        if self._support_reverse:
            self._reverse_mapping.append(category)
        return self._mapping.setdefault(category, len(self._mapping))

    def add(self, category: Any, count: int = 1) -> None:
        """Adds a category that occurred `count` times."""
        if self.get(category) > 0:
            self._freq[category] = self._freq.get(category, 0) + count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Removes rare and frequent categories, and sorts the others, the most frequent first.

        A category is kept if it occurs more than `min_frequency` times and, if `max_frequency` is
        positive, fewer than `max_frequency` times.
        """
        # Numbers come before strings, because they cannot be compared.
        by_name = sorted(self._freq.items(), key=lambda item: (isinstance(item[0], str), item[0]))
        by_count = sorted(by_name, key=lambda item: item[1], reverse=True)
        kept = [
            (category, count)
            for category, count in by_count
            if count > min_frequency and not 0 < max_frequency <= count
        ]
        self._set_categories([category for category, _ in kept])
        self._freq = dict(kept)

    def reverse(self, class_id: int) -> Any:
        """Returns the category of an id."""
        if not self._support_reverse:
            raise ValueError("reverse() needs a vocabulary with support_reverse=True.")
        return self._reverse_mapping[class_id]


class VocabularyProcessor:
    """Documents as arrays of word ids.

    Args:
      max_document_length: the length of the arrays; longer documents are cut, and zeros follow
        shorter documents.
      min_frequency: words that occur at most this many times are unknown; 0 keeps all words.
      vocabulary: a `CategoricalVocabulary`, instead of a new one.
      tokenizer_fn: a function that yields a list of words for each document, instead of
        `tokenizer`.
    """

    def __init__(
        self,
        max_document_length: int,
        min_frequency: int = 0,
        vocabulary: Optional[CategoricalVocabulary] = None,
        tokenizer_fn: Optional[Callable[[Iterable[Any]], Iterable[List[Any]]]] = None,
    ) -> None:
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(
        self, raw_documents: Iterable[Any], unused_y: Optional[Any] = None
    ) -> VocabularyProcessor:
        """Adds the words of documents to the vocabulary, freezes it, and returns this object."""
        for tokens in self._tokenizer(raw_documents):
            for word in tokens:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(
        self, raw_documents: Iterable[Any], unused_y: Optional[Any] = None
    ) -> Iterator[np.ndarray]:
        """Calls `fit`, and returns `transform(raw_documents)`."""
        return self.fit(raw_documents).transform(raw_documents)

    def transform(self, raw_documents: Iterable[Any]) -> Iterator[np.ndarray]:
        """Yields an int64 array with the ids of the words of each document."""
        for tokens in self._tokenizer(raw_documents):
            ids = np.zeros(self.max_document_length, np.int64)
            for position, token in zip(range(self.max_document_length), tokens):
                ids[position] = self.vocabulary_.get(token)
            yield ids

    def reverse(self, documents: Iterable[Iterable[int]]) -> Iterator[str]:
        """Yields the words of each array of ids, separated by spaces."""
        for ids in documents:
            yield " ".join(self.vocabulary_.reverse(number) for number in ids)

    def save(self, filename: str) -> None:
        """Writes this object to a file (a pickle, which `restore` reads)."""
        with tf.io.gfile.GFile(filename, "wb") as file:
            file.write(pickle.dumps(self, protocol=2))

    @classmethod
    def restore(
        cls,
        filename: str,
        tokenizer_fn: Optional[Callable[[Iterable[Any]], Iterable[List[Any]]]] = None,
    ) -> VocabularyProcessor:
        """Reads a file that `save` or `tf.contrib` has written. Never runs code from the file.

        Pass `tokenizer_fn` if the saved object did not use `tokenizer`. Files with other objects
        than words, numbers and a vocabulary are refused.
        """
        with tf.io.gfile.GFile(filename, "rb") as file:
            content = file.read()
        try:
            saved = _Unpickler(content).load()
            fields = _fields(saved, _PROCESSOR_TYPES)
            vocabulary = CategoricalVocabulary.__new__(CategoricalVocabulary)
            vars(vocabulary).update(_fields(saved.vocabulary_, _VOCABULARY_TYPES))
            home, name = fields.pop("_tokenizer")
        except Exception as error:  # pickle raises errors of many classes
            raise ValueError(
                f"filename={filename!r} has no VocabularyProcessor that can be read: {error!r}"
            ) from None
        is_default = name == "tokenizer" and f"{home}.".startswith(_TOKENIZER_HOMES)
        if tokenizer_fn is None and not is_default:
            raise ValueError(
                f"filename={filename!r} names the tokenizer {home}.{name}. Functions are not "
                "imported from files: call restore with tokenizer_fn=<this function>."
            )
        processor = cls.__new__(cls)
        vars(processor).update(fields, vocabulary_=vocabulary, _tokenizer=tokenizer_fn or tokenizer)
        return processor


class _Unpickler(pickle.Unpickler):
    """Reads a pickled `VocabularyProcessor` as an object without methods.

    Imports nothing: other classes and functions that the pickle names become pairs (module, name),
    which cannot be called.
    """

    def __init__(self, content: bytes):
        super().__init__(io.BytesIO(content), encoding="utf-8")  # for strings of Python 2
        # Create classes for each file, because a pickle can change the attributes of its classes.
        names = "VocabularyProcessor", "CategoricalVocabulary"
        self.known = {name: type(name, (), {}) for name in names}
        self.known.update(
            defaultdict=collections.defaultdict,
            int=int,
            object=object,
            _reconstructor=lambda cls, base, state: object.__new__(cls),
        )

    def find_class(self, module: str, name: str) -> Any:
        return self.known.get(name) or (module, name)


_TOKENIZER_HOMES = (
    f"{__name__}.",
    "tensorflow.contrib.learn.python.learn.preprocessing.",
)  # of `tokenizer`
_PROCESSOR_TYPES = {"max_document_length": int, "min_frequency": (int, float), "_tokenizer": tuple}
_VOCABULARY_TYPES = {
    "_unknown_token": object,
    "_mapping": dict,
    "_support_reverse": bool,
    "_reverse_mapping": list,
    "_freq": dict,
    "_freeze": bool,
}


def _fields(saved: Any, types: Mapping[str, type]) -> Dict[str, Any]:
    """Returns the attributes of a saved object whose names and types are given."""
    found = {name: vars(saved)[name] for name in types if name in vars(saved)}
    wrong = [name for name in found if not isinstance(found[name], types[name])]
    missing = set(types) - set(found) - {"_reverse_mapping"}  # needs support_reverse=True
    if wrong or missing:
        raise ValueError(f"wrong attributes: {sorted([*wrong, *missing])}")
    return found
