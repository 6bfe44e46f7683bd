"""Tests that all of the public API has type annotations that Python and editors can resolve."""

import inspect
import re
import shutil
import typing
from pathlib import Path

import jedi
import pytest

import legacy_opt
from legacy_opt import compat
from tests.support.paths import ROOT
from tests.tools import public_api

pytestmark = [pytest.mark.once, pytest.mark.keras2]  # some public names need Keras 2


def public_functions():
    """Yields (name, function) for each function and method in docs/public_api.txt."""
    public = [
        (f"{module.__name__}.{name}", getattr(module, name))
        for module in public_api.MODULES
        for name in module.__all__
    ]
    for name, value in [*public, *((each.__name__, each) for each in public_api.RESULTS)]:
        if inspect.isclass(value):
            yield from functions_of(name, value)
        elif callable(value):
            yield name, inspect.unwrap(value)


def functions_of(name, cls):
    """Yields (name, function) for each method and property of a class that legacy_opt defines."""
    for member in {"__init__", *public_api.members(cls)}:
        value = inspect.getattr_static(cls, member)
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if inspect.isfunction(value) and value.__module__.startswith("legacy_opt"):
            yield f"{name}.{member}", inspect.unwrap(value)


FUNCTIONS = dict(public_functions())


@pytest.mark.one_lane
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_public_signature_has_types(name):
    function = FUNCTIONS[name]
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters if each not in ("self", "cls")]
    untyped = [each for each in parameters if each not in function.__annotations__]
    assert untyped == []
    assert "return" in function.__annotations__
    assert set(typing.get_type_hints(function)) >= {*parameters, "return"}


def test_parameters_with_default_none_are_optional():
    # The annotations are read as text, because get_type_hints of old Python versions would add a
    # missing Optional.
    not_optional = [
        f"{name}({each})"
        for name, function in FUNCTIONS.items()
        for each in inspect.signature(function).parameters.values()
        if each.default is None and not re.search("Optional|None", each.annotation)
    ]
    assert not_optional == []


@pytest.mark.parametrize("cls", [each for each in public_api.RESULTS if hasattr(each, "_fields")])
def test_every_field_of_a_result_has_a_type(cls):
    hints = typing.get_type_hints(cls)
    assert set(hints) >= set(cls._fields)
    assert not {tuple, list, dict, object} & {hints[field] for field in cls._fields}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Creates a jedi project with compat inside legacy_opt, as in the installed package."""
    home = tmp_path_factory.mktemp("installed")
    ignored = shutil.ignore_patterns("__pycache__")  # other processes may be compiling
    shutil.copytree(str(ROOT / "legacy_opt"), str(home / "legacy_opt"), ignore=ignored)
    shutil.copytree(str(ROOT / "compat"), str(home / "legacy_opt" / "compat"), ignore=ignored)
    return jedi.Project(str(home))


def completions(source, project):
    """Returns the public names that jedi offers at the end of the source."""
    found = {each.name for each in jedi.Script(source, project=project).complete()}
    return {name for name in found if not name.startswith("_")}


def test_an_editor_completes_an_import(project):
    found = completions("from legacy_opt.compat import to_", project)
    assert found == {"to_keras", "to_plain_keras", "to_v1"}


@pytest.mark.parametrize("module", [legacy_opt, compat], ids=lambda module: module.__name__)
def test_an_editor_knows_what_a_package_has(module, project):
    name = module.__name__
    found = completions(f"import {name}\n{name}.", project)
    # jedi also offers the names of the files in the folder of the package.
    files = {path.stem for path in Path(str(project.path), *name.split(".")).iterdir()}
    assert set(module.__all__) <= found <= set(module.__all__) | files
