"""The text of the pages of the catalogue."""

from tests.support.paths import DOCS


def text_of(name):
    return (DOCS / name).read_text(encoding="utf-8")
