"""Reads the pages of docs/ and their Python examples, and writes their tables."""

import re

from tests.support.paths import DOCS


def table(head, rows):
    """Returns a table in Markdown."""
    lines = [head, ["---"] * len(head)] + rows
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


def part_of(text, name):
    """Returns the part of a page between `<!-- name -->` and `<!-- /name -->`."""
    return _split(text, name)[1]


def with_part(text, name, content):
    """Returns a page's text with new content between `<!-- name -->` and `<!-- /name -->`."""
    before, _, after = _split(text, name)
    return before + content + after


def _split(text, name):
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, found, rest = text.partition(start)
    content, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"The page needs a part between <!-- {name} --> and <!-- /{name} -->.")
    return before + start, content, end + after
