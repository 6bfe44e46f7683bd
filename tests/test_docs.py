"""The code that README.md and docs/ show runs, and does what they say."""

import inspect
import re
import runpy
from pathlib import Path

import pytest

from tests import rules

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md"] + sorted((ROOT / "docs").glob("*.md"))


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


def run_block(code, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(code, encoding="utf-8")
    return runpy.run_path(str(script))


def test_the_example_of_the_readme_learns(tmp_path, capsys):
    (code,) = python_blocks(ROOT / "README.md")
    run_block(code, tmp_path)
    assert float(capsys.readouterr().out) < 1e-6


# A block of Python, and what it prints if that is told in a block of text after it.
BLOCKS = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.S)


@pytest.mark.parametrize("name", ["keras.md", "plain_keras.md", "write_an_optimizer.md"])
def test_the_blocks_of_a_page_run_one_after_another_and_print_what_it_says(name, capsys):
    names = {"__name__": "page"}
    blocks = BLOCKS.findall((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert len(blocks) == len(python_blocks(ROOT / "docs" / name)) > 1
    for code, output in blocks:
        exec(compile(code, name, "exec"), names)
        assert capsys.readouterr().out == output, code


def test_the_page_on_which_keras_knows_this_one(tmp_path, capsys):
    page = ROOT / "docs" / "which_keras.md"
    (code,) = python_blocks(page)
    run_block(code, tmp_path)
    assert "| `%s` |" % capsys.readouterr().out.strip() in page.read_text(encoding="utf-8")


def test_the_tests_use_the_optimizers_that_the_page_shows():
    page = (ROOT / "docs" / "write_an_optimizer.md").read_text(encoding="utf-8")
    for optimizer in rules.DiffGradOptimizer, rules.AccumulatedSGDOptimizer:
        assert "\n\n\n" + inspect.getsource(optimizer) + "```\n" in page, optimizer


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), (page.name, target)
