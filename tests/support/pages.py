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
