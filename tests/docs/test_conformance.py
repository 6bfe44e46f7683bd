"""Tests that docs/conformance.md shows the data that `make conformance` measured."""

from benchmarks.conformance.cases import FAMILIES
from benchmarks.conformance.page import PAGE, page
from benchmarks.conformance.rules import RULES
from legacy_opt import recorded


def test_the_page_shows_the_data():
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run python -m benchmarks.conformance.page"


def test_each_rule_exists():
    used = {rule.name for family in FAMILIES.values() for rule in family.rules.values()}
    assert set(RULES) - {"FTRL, l2 twice"} <= used <= {*RULES, *recorded.catalogue()}
