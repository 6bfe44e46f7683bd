"""Reads the pages of docs/ and their Python examples."""

import re

from tests.support.paths import DOCS


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
