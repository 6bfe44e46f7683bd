"""Checks that docs/public_api.txt, which lists the public API, is up to date.

`python -m tests.tools.public_api` updates the file.
"""

from tests.tools import public_api


def test_the_page_is_up_to_date():
    assert public_api.PAGE.read_text(encoding="utf-8") == public_api.text()
