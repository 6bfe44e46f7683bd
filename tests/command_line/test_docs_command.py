"""Tests `legacy-opt docs`."""

import re

import pytest

from tests.support.paths import DOCS

pytestmark = pytest.mark.once  # does not need TensorFlow


def test_the_list_begins_with_the_pages_to_start_with(screen):
    names = list(screen.json("docs")["pages"])
    assert names[:3] == ["index", "script_stopped", "move_a_checkpoint"]
    assert set(names) == {path.stem for path in DOCS.glob("*.md")}


@pytest.mark.parametrize("name", ["from_to", "docs/from_to.md"])
def test_a_page_is_printed_without_comments(screen, name):
    code, output, errors = screen.run("docs", name)
    assert (code, errors) == (0, "") and output.startswith("# From, to\n")
    assert "tf.contrib.opt.LazyAdamOptimizer" in output and "<!--" not in output


def test_cards_and_tables_of_contents_are_for_the_site(screen):
    output = screen.json("docs", "index")["text"]
    assert "[My script stopped running](script_stopped.md)" in output
    assert not re.search("^:|{", output, re.M), "options of directives may have no hyphen"


@pytest.mark.parametrize(
    "word, hint", [("natve", "Did you mean 'native'?"), ("Nadam", "'Nadam' is in: ")]
)
def test_an_unknown_page(screen, word, hint):
    assert hint in screen.refused("docs", word)
