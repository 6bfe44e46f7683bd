"""Checks docs/provenance.md: the sources of the optimizers, and that no code was copied."""

import inspect
from pathlib import Path

import pytest
import tensorflow as tf

from legacy_opt.optimizers import catalogue
from tests.support.pages import text_of
from tests.support.paths import ROOT
from tests.tools import sources

LONGEST = 7  # lines in a row: the arguments of a call


@pytest.mark.once
def test_the_page_names_the_source_of_each_optimizer():
    text = text_of(sources.PAGE)
    assert sources.written(text) == text, "run: python -m tests.tools.sources"
    assert {name for names, _ in sources.sources().values() for name in names} > {
        *catalogue.__all__
    }


def runs(path, length):
    """Returns a set of each run of a file's lines, without comments, blank lines and spaces."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines = ["".join(line.partition("#")[0].split()) for line in lines]
    lines = [line for line in lines if line]
    return {tuple(lines[at : at + length]) for at in range(len(lines) - length + 1)}


def all_runs(folders, length):
    return set().union(*(runs(path, length) for each in folders for path in each.rglob("*.py")))


@pytest.mark.every_lane
@pytest.mark.contrib
def test_few_lines_equal_those_of_contrib():
    theirs = Path(inspect.getfile(tf.contrib.opt)).parents[1]
    ours = all_runs([ROOT / "legacy_opt", ROOT / "compat"], LONGEST)
    assert len(ours & all_runs([theirs], LONGEST)) == 1  # so it finds equal lines
    ours = all_runs([ROOT / "legacy_opt", ROOT / "compat"], LONGEST + 1)
    assert ours & all_runs([theirs], LONGEST + 1) == set()
