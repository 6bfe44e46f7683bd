"""Tests the words of error messages."""

import re

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.once
# An article before a name that is known at run time only, also in the next part of a string.
ARTICLE = re.compile(r"""\b[Aa]n? (["']\s*f["'])?(\{|%[rs])""")


def test_no_article_stands_before_a_name():
    """Otherwise, a message could say "a Adam"."""
    found = [
        (path.name, match.group())
        for folder in ("legacy_opt", "compat")
        for path in (ROOT / folder).rglob("*.py")
        for match in ARTICLE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
    assert ARTICLE.search("got a {name}") and ARTICLE.search('an "\n        f"{name}')
