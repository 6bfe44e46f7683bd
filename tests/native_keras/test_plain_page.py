"""docs/plain_keras.md shows the tables and the figures of today: both Kerases are needed."""

import pytest

from tests.support.paths import DOCS
from tests.tools import plain_keras_page

pytestmark = pytest.mark.keras3

PAGE = DOCS / "plain_keras.md"


def test_the_page_shows_the_tables_of_today():
    text = PAGE.read_text(encoding="utf-8")
    for make in plain_keras_page.FACTS.values():
        assert make() in text
    # Twice, for the two Keras: the figures of each kind are held by the tests above.
    assert all(text.count(f"| `{case}` |") == 2 for case in plain_keras_page.CASES)


@pytest.mark.parametrize("api", plain_keras_page.APIS)
@pytest.mark.parametrize("case", [plain_keras_page.CASES[3], plain_keras_page.CASES[-1]])
def test_the_page_shows_what_is_measured_today(case, api):
    """Which figures are 0, rounding or more; their last digits are the machine's."""
    (line,) = [
        line
        for line in PAGE.read_text(encoding="utf-8").split("<!-- keras 2 -->")[-1].splitlines()
        if line.startswith(f"| `{case}` | `")
    ][api == "keras3" :][:1]
    cells = line.strip("| ").split(" | ")[2:]
    grades = [
        "exact" if cell == "0" else "differs" if "%" in cell else "rounding" for cell in cells
    ]
    found = plain_keras_page.translated(case, api)
    assert grades == [figure.grade for figure in found.report.measurements]
