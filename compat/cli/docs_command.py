"""`legacy-opt docs`: prints a page of the documentation, which the package carries."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Dict, TextIO

import legacy_opt
from legacy_opt.core.nearest_names import did_you_mean

from . import tables, terminal

_DESCRIPTION = """\
Prints a page of the documentation as Markdown; without NAME, the names and titles of all pages.
Messages of this package name pages by these names.
"""
_EPILOG = """\
example: legacy-opt docs from_to

exit codes: 0, success; 2, there is no such page
"""
# The wheel contains the pages as legacy_opt/docs; a checkout has them beside the package.
_PACKAGE = Path(legacy_opt.__file__).resolve().parent
_FOLDERS = _PACKAGE / "docs", _PACKAGE.parent / "docs"
_CARD = re.compile(r"^:::\{grid-item-card\} (.*)$", re.M)
# Comments, tables of contents of the site, and the lines that make cards.
_MARKUP = re.compile(r"^(<!--.*?-->|```\{toctree\}.*?^```|:::.*?|:\w+:.*?)$\n", re.M | re.S)
_ENTRY = re.compile(r"^(\w+)$", re.M)  # of a table of contents
_TITLE = re.compile(r"^# (.*)", re.M)


def add_command(commands: terminal.Commands):
    """Adds `docs` to the command line."""
    parser = terminal.add_parser(
        commands, "docs", "print a page of the documentation", _DESCRIPTION, _EPILOG, execute
    )
    parser.add_argument("page", nargs="?", metavar="NAME", help="the name of the page")


def pages() -> Dict[str, Path]:
    """Returns a dict from the names of all pages to their paths, in the order of the site."""
    folder = next(each for each in _FOLDERS if each.is_dir())
    index = (folder / "index.md").read_text(encoding="utf-8")
    order = {name: number for number, name in enumerate(_ENTRY.findall(index))}
    paths = sorted(folder.glob("*.md"), key=lambda path: (order.get(path.stem, -1), path.stem))
    return {path.stem: path for path in paths}


def text_of(path: Path) -> str:
    """Returns the text of a page without the marks for the site, tests and tools."""
    text = _CARD.sub(r"\1", path.read_text(encoding="utf-8"))
    return _MARKUP.sub("", text)


def containing(word: str, found: Dict[str, Path]) -> str:
    """Returns a sentence that names the pages (up to five) in which a word is most frequent."""
    counts = {name: text_of(path).lower().count(word.lower()) for name, path in found.items()}
    names = sorted(filter(counts.get, counts), key=lambda name: -counts[name])[:5]
    return f" {word!r} is in: {', '.join(names)}." if names else ""


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Reads the pages and returns an `Outcome`."""
    found = pages()
    if arguments.page is None:
        titles = {name: _TITLE.search(text_of(path)).group(1) for name, path in found.items()}
        table = tables.Table(("name", "title"), list(titles.items()))
        return terminal.Outcome(terminal.SUCCESS, {"pages": titles}, (table,))
    name = Path(arguments.page).stem  # a path is fine, too
    if name not in found:
        hint = did_you_mean(name, found) or containing(name, found)
        raise ValueError(f"there is no page {name!r}.{hint} `legacy-opt docs` lists the pages.")
    text = text_of(found[name])
    facts = {"name": name, "text": text}
    return terminal.Outcome(terminal.SUCCESS, facts, tuple(text.splitlines()))
