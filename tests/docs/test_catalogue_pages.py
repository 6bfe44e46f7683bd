"""Tests that the optimizers' pages show current arguments, slots and measured differences."""

import numpy as np
import pytest

from legacy_opt.optimizers import catalogue
from tests.support.cases import public_optimizers
from tests.support.keras.keras_differences import PROBLEMS
from tests.support.pages import text_of
from tests.support.paths import ROOT
from tests.tools import catalogue_pages
from tests.tools.catalogue_pages import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_arguments_and_slots_are_up_to_date(name):
    page, text = PAGES[name], text_of(name)
    expected = catalogue_pages.written(text, page, catalogue_pages.FACTS)
    assert expected == text, "run: python -m tests.tools.catalogue_pages docs"
    for fact in ("arguments", "slots"):
        assert f"<!-- {fact} -->" in text


def test_every_optimizer_has_a_page():
    shown = {each.split("(")[0] for page in PAGES.values() for each in page.classes}
    ours = {each.__name__ for each in public_optimizers()}
    assert ours == shown, "change PAGES in tests/tools/catalogue_pages.py"


def test_every_optimizer_is_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = {name.replace("Optimizer", "").replace("V2", "") for name in catalogue.__all__}
    missing = [name for name in sorted(names) if f"`{name}`" not in readme]
    assert missing == [], "add them to the table of README.md"


def test_every_optimizer_is_in_the_lists_of_dynamic_tables():
    page = text_of("clients.md")
    classes = [each for each in catalogue.__all__ if each.endswith("Optimizer")]
    ours = [each for each in classes if each.replace("Optimizer", "") not in page]
    assert ours == [], "add them to docs/clients.md"


# Measuring the differences needs both Keras 2 and Keras 3.

# For differences below this bound, the pages show no percentage. The bound is a fraction of the
# largest change of any element during the training with the v1 optimizer.
ROUNDING = 1e-4
REPLACEMENTS = [
    pytest.param(
        name,
        replacement,
        generation,
        id=f"{generation} {replacement.v1}",
        marks=[] if replacement is page.replacements[-1] else [pytest.mark.full],
    )
    for name, page in PAGES.items()
    for replacement in page.replacements
    for generation in replacement.generations()
]


@pytest.mark.one_lane
@pytest.mark.keras3
@pytest.mark.parametrize("name, replacement, generation", REPLACEMENTS)
def test_the_measured_differences_to_keras_are_up_to_date(name, replacement, generation):
    start = f"| `{replacement.v1}` | {generation}: `{replacement.expression(generation)}` |"
    rows = [line for line in text_of(name).splitlines() if line.startswith(start)]
    assert len(rows) == 1, "run: python -m tests.tools.catalogue_pages docs"
    (row,) = rows
    cells = row[len(start) :].strip(" |").split(" | ")
    found = catalogue_pages.measure(replacement, generation)
    assert len(cells) == len(found) == len(PROBLEMS)
    for text, difference in zip(cells, found.values()):
        if "%" in text:
            np.testing.assert_allclose(difference.largest, float(text.split()[0]), rtol=0.06)
        else:
            assert difference.share < ROUNDING
