"""What the optimizers' pages in docs/ say of Keras' own, measured: both Keras are needed."""

import numpy as np
import pytest

from tests.support.keras.native_keras import PROBLEMS
from tests.support.pages import text_of
from tests.tools import catalogue_pages
from tests.tools.catalogue_pages import PAGES

pytestmark = pytest.mark.keras3

ROUNDING = 1e-4  # as a share of the way gone
REPLACEMENTS = [
    pytest.param(
        name,
        replacement,
        generation,
        id="%d %s" % (generation, replacement.v1),
        marks=[] if replacement is page.replacements[-1] else [pytest.mark.full],
    )
    for name, page in PAGES.items()
    for replacement in page.replacements
    for generation in replacement.generations()
]


@pytest.mark.parametrize("name, replacement, generation", REPLACEMENTS)
def test_the_page_tells_by_how_much_keras_differs(name, replacement, generation):
    start = "| `%s` | %d: `%s` |" % (
        replacement.v1,
        generation,
        replacement.expression(generation),
    )
    (row,) = [line for line in text_of(name).splitlines() if line.startswith(start)]
    told = row[len(start) :].strip(" |").split(" | ")
    found = catalogue_pages.measure(replacement, generation)
    assert len(told) == len(found) == len(PROBLEMS)
    for text, difference in zip(told, found.values()):
        if "%" in text:
            np.testing.assert_allclose(difference.largest, float(text.split()[0]), rtol=0.06)
        else:
            assert difference.share < ROUNDING
