"""Writes the sources of public names into docs/provenance.md, from the docstrings of their modules.

python -m tests.tools.sources
"""

import re
import sys

import legacy_opt
from tests.support.pages import table, text_of, with_part
from tests.support.paths import DOCS

PAGE = "provenance.md"
SOURCE = re.compile(r"^Source: (.*?)(?:\n\n|\Z)", re.M | re.S)


def sources():
    """Returns a dict from modules to the public names that they define, and their source."""
    found = {}
    for name in sorted(legacy_opt.__all__, key=str.lower):
        module = getattr(getattr(legacy_opt, name), "__module__", None)
        source = SOURCE.search(getattr(sys.modules.get(module), "__doc__", None) or "")
        if source:
            names, _ = found.setdefault(module, ([], " ".join(source.group(1).split())))
            names.append(name)
    return found


def written(text):
    """Returns the page with the table of the docstrings."""
    rows = [[", ".join(f"`{name}`" for name in names), text] for names, text in sources().values()]
    return with_part(text, "sources", table(["in `legacy_opt`", "source"], rows))


if __name__ == "__main__":
    (DOCS / PAGE).write_text(written(text_of(PAGE)), encoding="utf-8")
