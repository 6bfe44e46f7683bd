"""The optimizers' pages in docs/: their facts, and nothing that is measured."""

import pytest

from tests.support.cases import public_optimizers
from tests.support.pages import text_of
from tests.tools import catalogue_pages
from tests.tools.catalogue_pages import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_arguments_and_slots_are_those_of_today(name):
    page, text = PAGES[name], text_of(name)
    assert catalogue_pages.written(text, page, catalogue_pages.FACTS) == text
    for fact in ("arguments", "slots"):
        assert "<!-- %s -->" % fact in text


def test_every_optimizer_has_a_page():
    shown = {each.split("(")[0] for page in PAGES.values() for each in page.classes}
    ours = {each.__name__ for each in public_optimizers()}
    assert {name for name in ours if "AdagradDecay" not in name} == shown
