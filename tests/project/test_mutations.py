"""The mutations of `make mutations` fit the code, each by itself, and a stale one is told."""

import shutil
from pathlib import Path

import pytest

from tests.tools import mutations
from tests.tools.mutations import MUTATIONS, ROOT, Mutation

pytestmark = pytest.mark.once

EACH = pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(m, id="Keras %d: %s" % (key, m.name))
        for key in MUTATIONS
        for m in MUTATIONS[key]
    ],
)


@EACH
def test_it_applies(mutation, tmp_path):
    path = tmp_path / mutation.file
    path.parent.mkdir()
    shutil.copy(str(ROOT / mutation.file), str(path))
    before = path.read_text(encoding="utf-8")
    mutations.mutate(str(tmp_path), mutation)
    after = path.read_text(encoding="utf-8")
    assert after != before
    compile(after, str(path), "exec")


@EACH
def test_its_tests_are_there(mutation):
    for word in mutation.tests:
        if word.startswith("tests/"):
            assert Path(ROOT, word.split("::")[0]).exists()


@pytest.mark.parametrize("text", ["nothing of it", "twice twice"])
def test_a_stale_one_is_told(text, tmp_path):
    (tmp_path / "code.py").write_text(text, encoding="utf-8")
    mutation = Mutation("wrong", "code.py", "twice", "once", ())
    with pytest.raises(ValueError, match="'wrong' is stale: its text occurs [02] times in code.py"):
        mutations.mutate(str(tmp_path), mutation)
    assert (tmp_path / "code.py").read_text(encoding="utf-8") == text
