"""Tests the mutations (changes that break the code on purpose) of `make mutations`.

It must be possible to apply each mutation to the current code.
"""

import ast
from pathlib import Path

import pytest

from tests.tools import mutations
from tests.tools.mutations import MUTATIONS, ROOT, Mutation

pytestmark = pytest.mark.once

EACH = pytest.mark.parametrize(
    "mutation",
    [pytest.param(m, id=f"Keras {key}: {m.name}") for key in MUTATIONS for m in MUTATIONS[key]],
)


@EACH
def test_each_mutation_applies(mutation):
    path, tree = mutations.mutated(ROOT, mutation)
    assert ast.dump(tree) != ast.dump(ast.parse(path.read_text(encoding="utf-8")))
    compile(tree, str(path), "exec")


@EACH
def test_the_tests_of_each_mutation_exist(mutation):
    for word in mutation.tests:
        if word.startswith("tests/"):
            assert Path(ROOT, word.split("::")[0]).exists()


CODE = """
class Class:
    def method(self):
        %s

    def other(self):
        first = (one
                 + two)
"""


@pytest.mark.parametrize(
    "body, function, why",
    [
        ("pass", "Class.method", "its text occurs 0 times in code.py"),
        ("return [one + two, one+two]", "Class.method", "its text occurs 2 times in code.py"),
        ("return one + two", "Class.gone", "there are 0 functions Class.gone"),
    ],
)
def test_a_stale_mutation_is_reported(body, function, why, tmp_path):
    (tmp_path / "compat").mkdir()
    (tmp_path / "compat" / "code.py").write_text(CODE % body, encoding="utf-8")
    mutation = Mutation("wrong", function, "one + two", "one", ())
    with pytest.raises(ValueError, match=f"'wrong' is stale: {why}"):
        mutations.mutated(tmp_path, mutation)


@pytest.mark.parametrize(
    "old, new, result",
    [
        ("one + two", "one - two", "first = one - two"),
        ("first = one + two", "second = 2; third = 3", "second = 2; third = 3"),
        (mutations.WHOLE, "return None", "return None"),
    ],
)
def test_mutations_of_expressions_statements_and_functions(old, new, result, tmp_path):
    (tmp_path / "legacy_opt").mkdir()
    (tmp_path / "legacy_opt" / "code.py").write_text(CODE % "pass", encoding="utf-8")
    _, tree = mutations.mutated(tmp_path, Mutation("it", "Class.other", old, new, ()))
    other = tree.body[0].body[1]
    assert list(map(ast.dump, other.body)) == list(map(ast.dump, ast.parse(result).body))
