"""Tests that packages import only allowed packages, and may be imported in any order."""

import ast
import importlib
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.processes import programs
from tests.tools import layers

COMPAT = ROOT / "compat"
PROGRAM = "tests/tools/layers.py"
pytestmark = pytest.mark.once


def test_imports_run_downwards():
    assert layers.wrong_imports(layers.modules()) == []


def test_the_hook_imports_native_kernels():
    source = layers.modules()[layers.HOOK[0]].read_text()
    assert layers.HOOK[1] in layers.names_in(layers.HOOK[0], source, False, layers.modules())


def test_there_are_no_circles():
    assert layers.circles(layers.modules()) == set()


def run_with_python_alone(folder):
    """Runs the program without site-packages. Returns its exit code and what it prints."""
    command = [sys.executable, "-I", "-S", str(folder / PROGRAM)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


def test_the_program_needs_only_python(tmp_path):
    assert run_with_python_alone(ROOT) == (0, "")
    for name in PROGRAM, "legacy_opt/core/slots.py", "legacy_opt/wrappers/base.py":
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(str(ROOT / name), str(tmp_path / name))
    (tmp_path / "legacy_opt/core/slots.py").write_text("import legacy_opt.wrappers.base")
    wrong = "legacy_opt.core.slots must not import legacy_opt.wrappers.base\n"
    assert run_with_python_alone(tmp_path) == (1, wrong)


def test_circles_are_found(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("def late():\n    from legacy_opt.core import rule_optimizer\n")
    files = dict(layers.modules(), **{"legacy_opt.core.slots": path})
    assert layers.circles(files) >= {"legacy_opt.core.slots", "legacy_opt.core.rule_optimizer"}


def test_every_package_is_listed():
    assert {layers.package_of(module) for module in layers.modules()} == set(layers.ALLOWED)


@pytest.mark.parametrize(
    "module, source, wrong",
    [
        ("legacy_opt.core.slots", "def late():\n    import legacy_opt.wrappers.base", True),
        ("legacy_opt.core.slots", "from legacy_opt.versions import keras", False),
        ("legacy_opt.core.slots", "importlib.import_module('legacy_opt.public')", True),
        ("legacy_opt.compat.state.checkpoint_files.paths", "from ..cli import tables", True),
        ("legacy_opt.compat.state.checkpoint_files.paths", "from . import reader", False),
        ("legacy_opt.compat.cli.tables", "from ..state.checkpoint_files import paths", False),
        ("legacy_opt.compat.cli.tables", "from compat.state.checkpoint_files import paths", True),
        ("legacy_opt", "import_module({'main': 'native.settings'}[name])", True),
    ],
)
def test_wrong_imports_are_found(module, source, wrong, tmp_path):
    files = dict(layers.modules())
    path = tmp_path / ("__init__.py" if module == "legacy_opt.compat" else "module.py")
    path.write_text(source)
    found = {each for each in layers.wrong_imports({**files, module: path}) if each[0] == module}
    assert bool(found) == wrong


def is_face(path):
    """Returns whether a module only imports: it is a path that users import."""
    kinds = {type(node).__name__ for node in ast.parse(path.read_text(encoding="utf-8")).body}
    return path.name != "__init__.py" and kinds <= {"Expr", "ImportFrom", "Assign"}


def rooms(package):
    """Returns the packages and modules directly in a package, each with those that it imports."""
    files, start = layers.modules(), len(package) + 1
    inside = {name: path for name, path in files.items() if name.startswith(package + ".")}
    found = {name[start:].partition(".")[0]: set() for name in inside if not is_face(inside[name])}
    for module, name in layers.imports(files):
        room, other = module[start:].partition(".")[0], name[start:].partition(".")[0]
        if module in inside and name in inside and room in found and room != other:
            found[room].add(other)
    return found


@pytest.mark.parametrize(
    "package, most_rooms, most_floors",
    [
        ("legacy_opt.native", 5, 4),
        ("legacy_opt.programs", 12, 8),
        ("legacy_opt.recorded", 14, 8),
        ("legacy_opt.compat", 13, 5),
        ("legacy_opt.compat.in_keras", 12, 6),
        ("legacy_opt.compat.old_programs", 4, 4),
        ("legacy_opt.compat.state", 4, 3),
    ],
)
def test_packages_have_few_rooms_on_few_floors(package, most_rooms, most_floors):
    arrows = rooms(package)
    assert len(arrows) <= most_rooms, sorted(arrows)
    on_floors = layers.floors(arrows)
    assert set(on_floors) == set(arrows), "the other rooms import each other"
    assert max(on_floors.values()) <= most_floors, on_floors


def test_compat_has_few_flat_modules():
    flat = [name for name in rooms("legacy_opt.compat") if (COMPAT / f"{name}.py").exists()]
    assert len(flat) <= 10


def test_the_paths_that_users_import_stay():
    page = (ROOT / "docs" / "public_api.txt").read_text(encoding="utf-8")
    paths = re.findall(r"^(legacy_opt\S*)\n=+$", page, re.M)
    paths += ["legacy_opt.recorded.keras_state", "legacy_opt.compat.cli"]
    paths += ["legacy_opt.compat.check_devices"]  # a command
    assert len(paths) > 30 and set(paths) <= set(layers.modules())
    for path in paths:
        if not re.search("torch|jax|optax|keras", path):
            importlib.import_module(path)


IMPORT_EACH_FIRST = """
import importlib, os, sys
for name in sys.argv[1:]:
    if not os.fork():
        try:
            importlib.import_module(name)
        except Exception as error:
            is_extra = getattr(error, "name", None) in ("torch", "jax", "keras", "optax")
            if not is_extra and "Keras 3 is not installed" not in str(error):
                print(name, repr(error), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.full
def test_any_module_may_be_imported_first():
    done = programs.run("-c", IMPORT_EACH_FIRST, *layers.modules(), seconds=120)
    assert (done.returncode, done.stdout) == (0, "")


WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
import importlib
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_compiler_and_cache_need_no_tensorflow():
    home = "legacy_opt.native."
    names = [name for name in layers.modules() if name.startswith(home + "compiler")]
    names += [f"legacy_opt.programs.{name}" for name in ("program", "operations", "matrix_axes")]
    names += [home + "settings", home + "runtime.cache", home + "runtime.compiled_kernels"]
    # A new process, because the programs of `programs.run` have imported TensorFlow already.
    subprocess.check_call([sys.executable, "-c", WITHOUT_TENSORFLOW, *names], cwd=str(ROOT))
