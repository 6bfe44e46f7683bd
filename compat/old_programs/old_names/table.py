"""Reads the tables of old names: the text files beside this module."""

import itertools
import pathlib
from typing import Iterator, List, NamedTuple, Optional, Tuple

FOLDER = pathlib.Path(__file__).parent


class Row(NamedTuple):
    """A row of a table.

    A line of the file has the first form; below it, the names are in indented lines::

        tf.contrib.rnn tf.contrib.other -> new.module: What to watch out for.
            OldName Old=New

    The modules and names are separated by spaces, "->" and the text may be missing, and a row
    without names is about whole modules. Lines that begin with "#" are comments.

    Attributes:
      modules: the old modules.
      now: the new module or None.
      advice: the text or "".
      names: the names in the old modules; "Old=New" if the new name differs.
    """

    modules: List[str]
    now: Optional[str]
    advice: str
    names: List[str]

    def full_names(self) -> Iterator[Tuple[str, str]]:
        """Yields pairs: the full old name, and the name in the new module."""
        for module, name in itertools.product(self.modules, self.names):
            old, _, new = name.partition("=")
            yield f"{module}.{old}", new or old


def rows(file: str) -> List[Row]:
    """Returns the rows of a file."""
    found: List[Row] = []
    for line in (FOLDER / file).read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            found[-1].names.extend(line.split())
        elif line and not line.startswith("#"):
            place, _, advice = line.partition(": ")
            modules, _, now = place.partition(" -> ")
            found.append(Row(modules.split(), now or None, advice, []))
    return found
