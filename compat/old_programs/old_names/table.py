"""Reads the tables of old names: the text files beside this module."""

import itertools
import pathlib
from typing import Iterator, List, NamedTuple, Optional, Tuple

FOLDER = pathlib.Path(__file__).parent


class Row(NamedTuple):
    """A row of a table.

    The first line has the modules and the advice. Indented lines below it have the names::

        tf.contrib.rnn tf.contrib.other -> new.module: What to watch out for.
            OldName Old=New

    Without "-> new.module", `now` is None; without advice, `advice` is "". "Old=New" is a name that
    differs in the new module. A row without names is about whole modules. Lines that begin with "#"
    are comments.
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
    """Reads a file in `FOLDER`."""
    found: List[Row] = []
    for line in (FOLDER / file).read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            found[-1].names.extend(line.split())
        elif line and not line.startswith("#"):
            old_and_new, _, advice = line.partition(": ")
            modules, _, now = old_and_new.partition(" -> ")
            found.append(Row(modules.split(), now or None, advice, []))
    return found
