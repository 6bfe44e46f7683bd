"""Checks that docs/public_api.txt, which lists the public API, is up to date.

`python -m tests.tools.public_api` updates the file.
"""

from tests.tools import public_api


def test_the_page_is_up_to_date():
    expected = public_api.text()
    page = public_api.PAGE.read_text(encoding="utf-8")
    assert page == expected, "run: python -m tests.tools.public_api"
