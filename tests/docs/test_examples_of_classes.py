"""Runs the example in the docstring of each public class."""

import inspect
import re
import textwrap

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat

CLASSES = {
    name: getattr(module, name)
    for module in (legacy_opt, compat)
    for name in module.__all__
    if inspect.isclass(getattr(module, name))
}
# Matches the section "Example::" up to the first line that is not indented.
EXAMPLE = re.compile(r"^Example::\n\n((?:    .*\n|\n)+)", re.M)
# The comment after a print is what the example prints.
PRINTED = re.compile(r"print\(.*\)  # (.*)")


@pytest.mark.parametrize("name", CLASSES)
def test_the_example_of_a_class_runs_as_pasted(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = EXAMPLE.findall(inspect.cleandoc(CLASSES[name].__doc__) + "\n")
    assert len(examples) == 1, "the docstring of the class must have one block Example::"
    (code,) = examples
    assert "legacy_opt." in code and name in code
    exec(textwrap.dedent(code), {"tf": tf, "legacy_opt": legacy_opt, "__name__": "example"})
    assert capsys.readouterr().out.splitlines() == PRINTED.findall(code)
