"""Checks docs/public_api.txt, the list of the public API.

`python -m tests.tools.public_api` updates the list.
"""

from tests.tools import public_api


def test_the_page_is_up_to_date():
    assert public_api.PAGE.read_text(encoding="utf-8") == public_api.text()
