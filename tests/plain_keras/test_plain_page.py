"""Checks that docs/plain_keras.md is up to date. The page's tables need Keras 2 and Keras 3."""

import pytest

from tests.support.paths import DOCS
from tests.tools import plain_keras_page

pytestmark = pytest.mark.keras3

PAGE = DOCS / "plain_keras.md"


def test_the_tables_of_the_page_are_up_to_date():
    text = PAGE.read_text(encoding="utf-8")
    for make in plain_keras_page.FACTS.values():
        assert make() in text, "run: python -m tests.tools.plain_keras_page docs/plain_keras.md"
    # Each case has one row for Keras 2 and one for Keras 3. The test below and test_plain_training
    # check the contents.
    figures = text.split("<!-- keras 2 -->")[1].split("<!-- /keras 3 -->")[0]
    assert all(figures.count(f"| `{case}` |") == 2 for case in plain_keras_page.CASES)


@pytest.mark.parametrize("api", plain_keras_page.APIS)
@pytest.mark.parametrize("case", [plain_keras_page.CASES[3], plain_keras_page.CASES[-1]])
def test_the_measurements_of_the_page_are_up_to_date(case, api):
    """Compares only the grades of the numbers, because the digits depend on the machine."""
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
