"""Tests that docs/any_optimizer.md has the table of `legacy_opt.core.contract`."""

import pytest

from legacy_opt.core import contract
from tests.support.pages import text_of
from tests.support.paths import DOCS


def lines_of(exits):
    rows = contract.TABLE[exits]
    yield f"| method | {' | '.join(exits)} |"
    yield "|---" * (len(exits) + 1) + "|"
    for methods, how in rows.items():
        names = ", ".join(f"`{each}`" for each in methods.split())
        yield f"| {names} | {' | '.join(how)} |"


@pytest.mark.once
@pytest.mark.parametrize("exits", contract.TABLE)
def test_the_page_has_the_table(exits):
    table = "\n".join(lines_of(exits))
    assert table in text_of(DOCS / "any_optimizer.md"), f"write this table:\n{table}"
