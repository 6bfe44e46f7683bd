"""The public API is what its page says; `python -m tests.tools.public_api` writes it anew."""

from tests.tools import public_api


def test_the_page_is_up_to_date():
    assert public_api.PAGE.read_text(encoding="utf-8") == public_api.text()
