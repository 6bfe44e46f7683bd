"""Tests the wheel, the sdist, the installed package, and the modules that the package imports."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.once

EGG_INFO = "legacy_opt.egg-info"
# Files that a build adds to an sdist, and the folder that no sdist has.
NOT_OURS = (EGG_INFO + "/", "PKG-INFO", "setup.cfg", ".ci/")
HERE = ".".join(map(str, sys.version_info[:2]))


def run(*command, **options):
    """Runs a command without this process's PYTHONPATH; returns (exit code, stdout, stderr)."""
    environment = {name: at for name, at in os.environ.items() if name != "PYTHONPATH"}
    environment.update(options.pop("environment", {}))
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        **options,
    )
    return done.returncode, done.stdout, done.stderr


def succeed(*command, **options):
    code, output, errors = run(*command, **options)
    assert code == 0, output + errors
    return output


@pytest.fixture(scope="module")
def files():
    """Returns the paths of the checkout's files, as git or the list in an unpacked sdist has them.

    Files that git ignores are left out, and so is `.ci`, which belongs to no release.
    """
    if (ROOT / ".git").exists():
        words = "git", "ls-files", "--cached", "--others", "--exclude-standard"
        listed = succeed(*words, cwd=str(ROOT)).splitlines()
    else:
        listed = (ROOT / EGG_INFO / "SOURCES.txt").read_text(encoding="utf-8").splitlines()
    return {name for name in listed if (ROOT / name).exists() and not name.startswith(NOT_OURS)}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, files):
    """Copies the checkout, so that a build adds no file to it, with a file that git ignores."""
    copy = tmp_path_factory.mktemp("checkout")
    (copy / "legacy_opt" / "__pycache__").mkdir(parents=True)
    (copy / "legacy_opt" / "__pycache__" / "old.pyc").write_text("")
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(ROOT / name), str(copy / name))
    return copy


@pytest.fixture(scope="module")
def built(checkout):
    """Builds an sdist, and a wheel from the sdist; returns their folder."""
    succeed(sys.executable, "-m", "build", "--no-isolation", checkout, cwd=str(checkout))
    return checkout / "dist"


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def empty_venv(tmp_path_factory):
    """Returns the path of Python in a new environment that has pip, but not TensorFlow."""
    home = tmp_path_factory.mktemp("venv")
    succeed(sys.executable, "-m", "venv", home)
    return home / "bin" / "python"


def install(python, path):
    pip = [python, "-m", "pip", "install", "--no-index", "--no-deps", "--force-reinstall"]
    succeed(*(pip + ["--disable-pip-version-check", path]))


def sources(checkout):
    """Returns the paths that the package's files have in the wheel."""
    files = [path for folder in ("legacy_opt", "compat") for path in (checkout / folder).rglob("*")]
    names = {path.relative_to(checkout).as_posix() for path in files if path.is_file()}
    endings = (".py", "py.typed", ".cc", ".h", ".json", ".txt")
    names = {name for name in names if name.endswith(endings)}
    names |= {f"compat/cli/completions/{shell}" for shell in ("bash", "fish", "zsh")}
    names |= {f"docs/{page.name}" for page in (checkout / "docs").glob("*.md")}
    elsewhere = "compat/", "docs/"
    return {"legacy_opt/" + name if name.startswith(elsewhere) else name for name in names}


def metadata(wheel):
    with zipfile.ZipFile(str(wheel)) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        return email.message_from_string(archive.read(name).decode())


def test_wheel_holds_the_package_and_nothing_else(checkout, wheel):
    with zipfile.ZipFile(str(wheel)) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == sources(checkout)
    assert {"legacy_opt/py.typed", "legacy_opt/compat/in_keras/bridge.py"} <= names
    assert wheel.name.endswith("-py3-none-any.whl")


def test_sdist_holds_what_git_tracks(files, built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(str(path)) as archive:
        members = [each for each in archive.getmembers() if not each.isdir()]
    names = {each.name.partition("/")[2] for each in members}
    assert {name for name in names if not name.startswith(NOT_OURS)} == files
    assert {"CHANGELOG.md", "docs/from_to.md", "tests/conftest.py", "Makefile"} <= names


def test_a_module_of_an_earlier_build_is_not_in_the_wheel(checkout, tmp_path):
    old = checkout / "build" / "lib" / "legacy_opt" / "removed.py"
    old.parent.mkdir(parents=True)
    old.write_text("")
    try:
        script = f"from setuptools import build_meta; build_meta.build_wheel({str(tmp_path)!r})"
        succeed(sys.executable, "-c", script, cwd=str(checkout))
        (wheel,) = tmp_path.glob("*.whl")
        with zipfile.ZipFile(str(wheel)) as archive:
            names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert names == sources(checkout)
        assert [path for path in (checkout / "build").rglob("*") if path.is_file()] == [old]
    finally:
        shutil.rmtree(str(checkout / "build"))


def test_metadata(wheel):
    import legacy_opt

    fields = metadata(wheel)
    assert fields["Name"].replace("_", "-") == "legacy-opt"
    assert fields["Version"] == legacy_opt.__version__
    assert fields["Requires-Python"] == ">=3.7"
    assert "Apache-2.0" in (fields["License"] or "", fields["License-Expression"])
    needed = [line for line in fields.get_all("Requires-Dist") if "extra ==" not in line]
    assert needed == ["numpy"]
    extras = set(fields.get_all("Provides-Extra"))
    assert extras == {"cli", "scipy", "slim", "torch", "jax", "examples", "test"}
    assert fields.get_payload().strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()


TARGETS = re.compile(r"\]\((?!#)([^)]+)\)")


def test_links_of_the_readme_lead_to_files_of_the_sdist(files):
    """As long as metadata.json has no repository, the links of the package index are relative."""
    targets = TARGETS.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(targets) > 20
    assert {target.partition("#")[0] for target in targets} <= files


def test_links_are_absolute_with_a_repository(checkout, tmp_path):
    import legacy_opt

    given = checkout / "metadata.json"
    before = given.read_text()
    fields = {"repository": "https://example.org/us/legacy-opt/", "author": "Ann Example"}
    given.write_text(json.dumps({**json.loads(before), **fields}))
    try:
        script = "from setuptools import build_meta as meta; "
        script += f"meta.prepare_metadata_for_build_wheel({str(tmp_path)!r})"
        succeed(sys.executable, "-c", script, cwd=str(checkout))
    finally:
        given.write_text(before)
    (path,) = tmp_path.rglob("METADATA")
    made = email.message_from_string(path.read_text(encoding="utf-8"))
    tag = f"v{legacy_opt.__version__}"
    root = "https://example.org/us/legacy-opt"
    text = made.get_payload()
    targets = TARGETS.findall(text)
    assert all(target.startswith(f"{root}/") and f"/{tag}/" in target for target in targets)
    assert f"]({root}/raw/{tag}/docs/images/migration.png)" in text
    assert f"]({root}/blob/{tag}/docs/from_to.md)" in text
    assert made["Author"] == "Ann Example"
    assert f"Changelog, {root}/blob/{tag}/CHANGELOG.md" in made.get_all("Project-URL")


def test_wheel_without_tensorflow_says_what_to_install(empty_venv, wheel, tmp_path):
    install(empty_venv, wheel)
    succeed(empty_venv, "-c", "import legacy_opt; legacy_opt.__version__", cwd=str(tmp_path))
    names = "import legacy_opt; assert 'compat' in dir(legacy_opt)"
    succeed(empty_venv, "-c", names, cwd=str(tmp_path))
    for statement in ("import legacy_opt as l; l.Slot", "from legacy_opt import RuleOptimizer"):
        code, _, errors = run(empty_venv, "-c", statement, cwd=str(tmp_path))
        assert code == 1
        last = errors.strip().splitlines()[-1]
        assert last.startswith("ImportError: legacy_opt needs TensorFlow")
        assert "pip install tensorflow-cpu" in last


def test_a_wheel_that_is_not_unpacked(empty_venv, wheel, tmp_path):
    """Such as in `--py-files` of Spark: compat is looked for in the archive."""
    environment = {"PYTHONPATH": str(wheel)}
    script = "import legacy_opt.compat; print(legacy_opt.compat.__file__)"
    output = succeed(empty_venv, "-c", script, cwd=str(tmp_path), environment=environment)
    assert output.strip().startswith(f"{wheel}/legacy_opt/compat")


@pytest.mark.parametrize("command", ["python -m legacy_opt", "legacy-opt"])
def test_doctor_without_tensorflow(empty_venv, wheel, tmp_path, command):
    install(empty_venv, wheel)
    words = [empty_venv.with_name(command.split()[0])] + command.split()[1:]
    code, output, errors = run(*(words + ["doctor"]), cwd=str(tmp_path))
    assert (code, errors) == (1, "")
    assert "ERROR: TensorFlow is not installed." in output
    assert "fix: pip install tensorflow-cpu" in output
    code, output, errors = run(*(words + ["doctor", "--json"]), cwd=str(tmp_path))
    assert (code, errors) == (1, "")
    facts = json.loads(output)
    assert facts["packages"] == {}
    assert facts["legacy_opt"]["path"].startswith(str(empty_venv.parent.parent))
    assert succeed(*(words + ["--help"]), cwd=str(tmp_path)).count("doctor") == 1
    code, output, errors = run(*(words + ["inspect", "x"]), cwd=str(tmp_path))
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert "pip install tensorflow-cpu" in errors


IMPORT_EVERYTHING = """
import legacy_opt, os, pkgutil, sys
assert "tensorflow" not in sys.modules
from legacy_opt import *
from legacy_opt import RuleOptimizer
import legacy_opt.compat
from legacy_opt.compat import diagnose
assert issubclass(AdagradDecayOptimizer, RuleOptimizer)
assert set(legacy_opt.__all__) <= set(globals())
modules = {module.name for module in pkgutil.iter_modules(legacy_opt.__path__)}
assert {"core", "public"} <= modules and not modules & {"setup", "tests", "lanes"}
folder = sys.argv[1]
assert os.path.dirname(os.path.dirname(legacy_opt.__file__)) == folder, legacy_opt.__file__
assert os.path.dirname(legacy_opt.compat.__file__) == sys.argv[2], legacy_opt.compat.__file__
try:
    import compat
except ImportError:
    print("no compat")
else:
    import compat.in_keras.v1_optimizers.serialization
    from compat import to_keras
    from compat.in_keras.v1_optimizers import nesting
    from legacy_opt.compat.in_keras.v1_optimizers import nesting as same
    assert compat is legacy_opt.compat is sys.modules["compat"]
    assert to_keras is legacy_opt.compat.to_keras and nesting is same
    for name, module in list(sys.modules.items()):
        if name.startswith("compat."):
            assert module is sys.modules["legacy_opt." + name]
            assert module.__spec__.name == module.__name__ == "legacy_opt." + name
    print("compat")
"""


def lane_packages():
    """Returns the site-packages folders of this environment, which contain TensorFlow."""
    return {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}


def add_tensorflow(python):
    """Adds the packages of this environment to another environment.

    Args:
      python: the path of Python in the other environment.

    Returns:
      The site-packages folder of the other environment.
    """
    script = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = Path(succeed(python, "-c", script).strip())
    # From Python 3.12 on, old TensorFlow versions need the copy of distutils in setuptools.
    shim = "import importlib.util as u; u.find_spec('_distutils_hack') and "
    shim += "__import__('_distutils_hack').add_shim()"
    (folder / "lane.pth").write_text("\n".join(sorted(lane_packages()) + [shim, ""]))
    return folder


def test_uninstalled_checkout(checkout, tmp_path):
    command = [sys.executable, "-c", IMPORT_EVERYTHING, checkout, checkout / "compat"]
    output = succeed(*command, cwd=str(tmp_path), environment={"PYTHONPATH": str(checkout)})
    assert output.strip() == "compat"


NAMES_OF_COMPAT = """
import sys, legacy_opt
try:
    legacy_opt.to_keras
except AttributeError as error:
    print(error)
print("tensorflow" in sys.modules)
"""


def test_the_error_for_a_name_of_compat_names_it_without_tensorflow(tmp_path):
    environment = {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", NAMES_OF_COMPAT]
    output = succeed(*command, cwd=str(tmp_path), environment=environment)
    message = "legacy_opt has no attribute 'to_keras': it is legacy_opt.compat.to_keras"
    assert output.splitlines() == [message, "False"]


def test_compat_may_be_imported_first(checkout):
    script = "import compat, legacy_opt.compat, sys; assert compat is legacy_opt.compat"
    succeed(sys.executable, "-c", script, cwd=str(checkout))


def test_installed_wheel(empty_venv, wheel, tmp_path):
    install(empty_venv, wheel)
    folder = add_tensorflow(empty_venv)
    try:
        command = [empty_venv, "-c", IMPORT_EVERYTHING, folder, folder / "legacy_opt" / "compat"]
        assert succeed(*command, cwd=str(tmp_path)).strip() == "no compat"
    finally:
        (folder / "lane.pth").unlink()


def test_editable_install(empty_venv, checkout, tmp_path):
    script = "from setuptools import build_meta; print(build_meta.build_editable(%r))"
    output = succeed(sys.executable, "-c", script % str(tmp_path), cwd=str(checkout))
    install(empty_venv, tmp_path / output.split()[-1])
    folder = add_tensorflow(empty_venv)
    try:
        command = [empty_venv, "-c", IMPORT_EVERYTHING, checkout, checkout / "compat"]
        assert succeed(*command, cwd=str(tmp_path)).strip() == "no compat"
    finally:
        (folder / "lane.pth").unlink()


NEW_MODULES = """
import sys
import tensorflow
before = set(sys.modules)
import legacy_opt
alone = set(sys.modules) - before
assert alone <= {"legacy_opt", "legacy_opt._checkout"}, alone
legacy_opt.RuleOptimizer
print(" ".join(sorted(set(sys.modules) - before)))
"""


def test_import_costs_nothing_beside_tensorflow(tmp_path):
    output = succeed(
        sys.executable, "-c", NEW_MODULES, cwd=str(tmp_path), environment={"PYTHONPATH": str(ROOT)}
    )
    new = output.split()
    assert "legacy_opt.core.rule_optimizer" in new
    # compat/__init__.py may be imported, but no module inside compat.
    assert not [name for name in new if name.startswith(("legacy_opt.compat.", "compat"))]
    standard = sysconfig.get_path("stdlib")
    script = "import importlib.util, sys\nfor name in sys.argv[1:]:\n"
    script += "    print(name, importlib.util.find_spec(name).origin)"
    tops = {name.split(".")[0] for name in new} - {"legacy_opt", "tensorflow", "numpy"}
    origins = succeed(*([sys.executable, "-c", script] + sorted(tops))).splitlines()
    strangers = [
        line
        for line in origins
        if "site-packages" in line or not line.split()[1].startswith((standard, "built", "frozen"))
    ]
    assert strangers == []


def test_python_m_of_another_package_finds_the_names(tmp_path):
    package = tmp_path / "training"
    package.mkdir()
    (package / "__init__.py").write_text("from legacy_opt import AdagradDecayOptimizer\n")
    (package / "train.py").write_text(
        "import legacy_opt, training\n"
        "assert legacy_opt.AdagradDecayOptimizer is training.AdagradDecayOptimizer\n"
        "print('trained')\n"
    )
    command = [sys.executable, "-m", "training.train"]
    output = succeed(*command, cwd=str(tmp_path), environment={"PYTHONPATH": str(ROOT)})
    assert output.strip() == "trained"
