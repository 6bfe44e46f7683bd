"""DeepRec's EmbeddingVariables, which are hash tables, as a checkpoint's names tell them."""

import collections
import re

_PIECE = re.compile(
    r"(?P<name>.+?)(?:/part_\d+)?-(?P<piece>keys|values|freqs|versions|keys_filtered|"
    r"freqs_filtered|versions_filtered|partition_offset|partition_filter_offset)$"
)
WHY = (
    "DeepRec's EmbeddingVariable, a table of any ids with their rows. TensorFlow has no such "
    "variable, and Keras no place for it. Save a dense copy of its rows in DeepRec"
)


def embedding_variables(names):
    """Groups the tensors that hold EmbeddingVariables.

    Args:
      names: the names of a checkpoint's tensors.

    Returns:
      A dict from the name of each EmbeddingVariable to a list of the names of its tensors.
    """
    found = collections.OrderedDict()
    for name in names:
        piece = _PIECE.match(name)
        if piece:
            found.setdefault(piece.group("name"), []).append(name)
    has_rows = {
        name: {_PIECE.match(each).group("piece") for each in tensors} >= {"keys", "values"}
        for name, tensors in found.items()
    }
    return collections.OrderedDict(item for item in found.items() if has_rows[item[0]])
