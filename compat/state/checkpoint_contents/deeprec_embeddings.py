"""Recognises EmbeddingVariables by the names of their tensors.

An EmbeddingVariable is a hash table in DeepRec, a fork of TensorFlow 1.15.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List

_PIECE = re.compile(
    r"(?P<name>.+?)(?:/part_\d+)?-(?P<piece>keys|values|freqs|versions|keys_filtered|"
    r"freqs_filtered|versions_filtered|partition_offset|partition_filter_offset)$"
)
WHY = (
    "DeepRec's EmbeddingVariable, a hash table from ids to rows. Neither TensorFlow nor Keras has "
    "such a variable. Use DeepRec to save a dense copy of the rows"
)


def embedding_variables(names: Iterable[str]) -> Dict[str, List[str]]:
    """Returns a dict from the name of each EmbeddingVariable to a list of its tensors' names."""
    tensors_by_variable = {}
    for name in names:
        piece = _PIECE.match(name)
        if piece:
            tensors_by_variable.setdefault(piece.group("name"), []).append(name)
    return {
        name: tensors
        for name, tensors in tensors_by_variable.items()
        if {_PIECE.match(each).group("piece") for each in tensors} >= {"keys", "values"}
    }
