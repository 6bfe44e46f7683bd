"""Tests that docs/catalogue.md has a current card for each public optimizer and wrapper."""

import legacy_opt
from legacy_opt.optimizers import stock_rules
from tests.support.cases import optimizers_in
from tests.support.pages import text_of
from tests.support.paths import DOCS
from tests.tools import catalogue_cards
from tests.tools.catalogue_cards import CARDS, FAMILIES, PAGE, STOCK


def test_the_cards_are_up_to_date():
    assert catalogue_cards.page_text() == text_of(PAGE), (
        "run: python -m tests.tools.catalogue_cards"
    )


def test_every_optimizer_and_wrapper_has_a_card():
    ours = set(optimizers_in(legacy_opt)) - {"RuleOptimizer", "OptimizerWrapper"}
    names = [card.name for card in CARDS]
    assert len(names) == len(set(names))
    assert ours | {"extend_with_decoupled_weight_decay"} == set(names), (
        "add a card to CARDS in tests/tools/catalogue_cards.py"
    )


def test_every_rule_of_tensorflow_is_in_the_table():
    ours = {each.partition("(")[0] for each in STOCK}
    assert ours == {cls.__name__ for cls in stock_rules.RULES}


def test_the_cards_lead_to_pages_and_pictures():
    assert {card.family for card in CARDS} == set(FAMILIES)
    for card in CARDS:
        assert (DOCS / card.family).exists()
        picture = f"images/curves/{card.name}.png"
        assert (picture in text_of(PAGE)) == (DOCS / picture).exists()


def test_the_numbers_of_other_pages_are_found():
    """The other pages are parsed, so a new layout there must not empty the cards."""
    assert "bit for bit" in catalogue_cards.originals("LazyAdamOptimizer")
    assert catalogue_cards.originals("DiffGradOptimizer") != "–"
    measured = [card.name for card in CARDS if catalogue_cards.speed(_name(card)) != "–"]
    assert len(measured) >= 12
    assert set(catalogue_cards.accelerated()) == {"Adam", "Adagrad", "Momentum"}


def _name(card):
    return card.speed or card.name.replace("Optimizer", "")
