"""Checks that docs/public_api.txt lists the public API, with each name that a page uses.

`python -m tests.tools.public_api` updates the file.
"""

import ast
import re

import pytest

from legacy_opt.compat import estimator, estimator_names
from tests.support.pages import python_blocks
from tests.support.paths import ROOT
from tests.tools import public_api

# Pages for contributors name modules that are not public.
FOR_CONTRIBUTORS = "architecture", "maintaining"
PAGES = [each for each in (ROOT / "docs").glob("*.md") if each.stem not in FOR_CONTRIBUTORS]
PUBLIC = public_api.public_names()
STATES = "jax_state", "optax_own", "state_files", "torch_own", "torch_state"
# {how a name in a text may begin: its module}
BEGINNINGS = {
    "legacy_opt": "legacy_opt",
    "compat": "legacy_opt.compat",
    "contrib": "legacy_opt.compat.contrib",
    "recorded": "legacy_opt.recorded",
    **{name: f"legacy_opt.recorded.{name}" for name in STATES},
}
IN_TEXT = re.compile(rf"(?<![\w.])(?<!-m )({'|'.join(BEGINNINGS)})((?:\.(?!v1\b)[A-Za-z_]\w*)+)")


def test_the_page_is_up_to_date():
    expected = public_api.text()
    page = public_api.PAGE.read_text(encoding="utf-8")
    assert page == expected, "run: python -m tests.tools.public_api"


def is_public(name):
    """Whether a full name is that of a public module, or of a name in it or in its classes."""
    if name in PUBLIC:
        return True
    module, _, word = name.rpartition(".")
    if name.startswith(estimator.__name__ + "."):
        return name.split(".")[3] in estimator_names.NAMES
    if module in PUBLIC:
        return word in PUBLIC[module]
    home, _, owner = module.rpartition(".")
    return hasattr(PUBLIC.get(home, {}).get(owner), word)


def names_in_code(trees):
    """Yields the full names that the code blocks of a page import, or reach through imports."""
    homes = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            for alias in node.names:
                name = f"{module}.{alias.name}" if module else alias.name
                if name.split(".")[0] == "legacy_opt":
                    yield name
                    homes[alias.asname or alias.name] = name
        elif isinstance(node, ast.Attribute):
            words = []
            while isinstance(node, ast.Attribute):
                words.insert(0, node.attr)
                node = node.value
            if getattr(node, "id", None) in homes:
                yield ".".join([homes[node.id], *words])


@pytest.mark.once
@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_pages_use_public_names(page):
    trees = map(ast.parse, python_blocks(page))
    text = re.sub("^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = IN_TEXT.findall(" ".join(re.findall("`[^`]+`", text)))
    names = {*names_in_code(trees), *(BEGINNINGS[word] + rest for word, rest in found)}
    assert sorted(name for name in names if not is_public(name)) == []
