"""`legacy-opt docs`: prints a page of the documentation, which the package carries."""

import re
from pathlib import Path

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
_COMMENT = re.compile(r"^<!--.*?-->\n", re.M | re.S)
_TITLE = re.compile(r"^# (.*)", re.M)


def add_command(commands):
    """Adds `docs` to the command line."""
    parser = terminal.add_parser(
        commands, "docs", "print a page of the documentation", _DESCRIPTION, _EPILOG
    )
    parser.add_argument("page", nargs="?", metavar="NAME", help="the name of the page")
    parser.set_defaults(
        run=lambda arguments: terminal.run_command(
            "docs", execute, arguments, with_tensorflow=False
        )
    )


def pages():
    """Returns a dict from the names of all pages to their paths."""
    folder = next(each for each in _FOLDERS if each.is_dir())
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def text_of(path):
    """Returns the text of a page without comments, which are for tests and tools."""
    return _COMMENT.sub("", path.read_text(encoding="utf-8"))


def execute(arguments, screen):
    """Reads the pages and returns an `Outcome`."""
    del screen
    found = pages()
    if arguments.page is None:
        titles = {name: _TITLE.search(text_of(path)).group(1) for name, path in found.items()}
        table = tables.Table(("name", "title"), list(titles.items()))
        return terminal.Outcome(terminal.SUCCESS, {"pages": titles}, (table,))
    if arguments.page not in found:
        raise ValueError(
            f"there is no page {arguments.page!r}.{did_you_mean(arguments.page, found)} "
            "`legacy-opt docs` lists the pages."
        )
    text = text_of(found[arguments.page])
    facts = {"name": arguments.page, "text": text}
    return terminal.Outcome(terminal.SUCCESS, facts, tuple(text.splitlines()))
