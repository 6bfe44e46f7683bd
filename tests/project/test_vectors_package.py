"""Tests the package legacy-opt-vectors: what it contains, and the verdicts of its program."""

import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest

from legacy_opt import proofs
from tests.support.paths import ROOT
from tests.tools import vectors

pytestmark = pytest.mark.once
FOLDER = ROOT / "vectors"
MODULE = """
    import numpy as np

    def summed(gradient, table):
        if not isinstance(gradient, tuple):
            return ..., gradient
        rows, inverse = np.unique(gradient[0], return_inverse=True)
        sums = np.zeros((len(rows), *table.shape[1:]), table.dtype)
        np.add.at(sums, inverse.reshape(-1), gradient[1])
        return rows, sums

    def momentum(variables, hyperparameters, change=lambda update: update):
        slots = {name: np.zeros_like(array) for name, array in variables.items()}

        def step(gradients, hyperparameters):
            with np.errstate(all="ignore"):
                for name, gradient in gradients.items():
                    m = slots[name]
                    rows, gradient = summed(gradient, m)
                    rate, mu = (m.dtype.type(hyperparameters[each]) for each in names)
                    m[rows] = mu * m[rows] + gradient
                    variables[name][rows] -= change(rate * m[rows])

        return step

    names = "learning_rate", "momentum"

    def rounded(*arguments):
        return momentum(*arguments, change=lambda update: update * 3 / 3)

    def larger(*arguments):
        return momentum(*arguments, change=lambda update: update * 1.001)

    def nearly(*arguments):
        return momentum(*arguments, change=lambda update: update * (1 + 6 * 2**-24))

    def finite(*arguments):
        return momentum(*arguments, change=np.nan_to_num)

    def fails(*arguments):
        raise KeyError("no rule")

    def removes(variables, hyperparameters):
        return lambda gradients, hyperparameters: variables.clear()

    def broadcasts(variables, hyperparameters):
        def step(gradients, hyperparameters):
            for name in variables:
                variables[name] = np.zeros(1, "float32")

        return step

    def exits(*arguments):
        raise SystemExit(0)

    def keeps_the_gradient(variables, hyperparameters):
        slots = {}

        def step(gradients, hyperparameters):
            rate, mu = (hyperparameters[each] for each in names)
            for name, gradient in gradients.items():
                rows, gradient = summed(gradient, variables[name])
                is_first = name not in slots or rows is not ...
                slots[name] = gradient if is_first else mu * slots[name] + gradient
                variables[name][rows] -= rate * slots[name]

        return step

    def adagrad_decay(variables, hyperparameters):
        start, decay = hyperparameters["initial_accumulator_value"], 100_000
        slots = {name: np.full_like(array, start) for name, array in variables.items()}
        decays = {name: np.zeros((len(array), *[1] * (array.ndim - 1)), array.dtype)
                  for name, array in variables.items()}

        def step(gradients, hyperparameters):
            with np.errstate(all="ignore"):
                for name, gradient in gradients.items():
                    a, variable, count = slots[name], variables[name], decays[name]
                    rate, factor = (a.dtype.type(hyperparameters[each]) for each in
                                    ("learning_rate", "accumulator_decay_rate"))
                    rows, gradient = summed(gradient, a)
                    is_due = (hyperparameters.get("global_step", 0) + 1) // decay > count[rows]
                    a[rows] = np.where(is_due, np.maximum(a[rows] * factor, start), a[rows])
                    count[rows] += is_due
                    a[rows] += gradient * gradient
                    variable[rows] -= rate * gradient / np.sqrt(a[rows])

        return step
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds an sdist of a copy, and a wheel of the sdist; returns their folder."""
    folder = tmp_path_factory.mktemp("vectors")
    skipped = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(str(FOLDER), str(folder / "vectors"), ignore=skipped)
    command = [sys.executable, "-m", "build", "--no-isolation", folder / "vectors"]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return folder / "vectors" / "dist"


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """Returns the Python of a new environment with NumPy and the wheel."""
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    numpy = Path(np.__file__).parent
    for each in numpy, numpy.with_name("numpy.libs"):
        if each.exists():
            (packages / each.name).symlink_to(each)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(str(wheel)) as archive:
        archive.extractall(str(packages))
    return home / "bin" / "python"


@pytest.fixture
def user(tmp_path, monkeypatch):
    """Changes into a folder with the module `mine`."""
    (tmp_path / "mine.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)


def run(python, rule, function, *options):
    """Returns the exit code, the verdicts by the names of files, and all that was printed."""
    command = [python, "-I", "-m", "legacy_opt_vectors.run", rule, "--with", function, *options]
    command = [str(word) for word in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = [line.partition(": ") for line in done.stdout.splitlines()]
    return done.returncode, {name: text.split(",")[0] for name, _, text in lines}, done.stdout


def test_the_packages_contain_the_data_and_the_program(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    data = {f"legacy_opt_vectors/data/{path.name}" for path in vectors.FOLDER.iterdir()}
    with zipfile.ZipFile(str(wheel)) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert sum(each.file_size for each in archive.infolist()) < 5_000_000
        assert any(name.endswith("LICENSE") for name in archive.namelist())
    assert names == {"legacy_opt_vectors/run.py", *data} and len(data) == 208
    with tarfile.open(str(sdist)) as archive:
        members = {name.partition("/")[2] for name in archive.getnames()}
    assert {*names, "LICENSE", "README.md", "pyproject.toml"} <= members


def test_the_program_is_short_and_needs_numpy_alone(python, user):
    assert len((FOLDER / "legacy_opt_vectors" / "run.py").read_text().splitlines()) <= 300
    code = "import sys, legacy_opt_vectors.run; print(*{n.split('.')[0] for n in sys.modules})"
    done = subprocess.check_output([str(python), "-I", "-c", code], universal_newlines=True)
    assert "numpy" in done.split() and not {"legacy_opt", "tests"} & set(done.split())


@pytest.mark.parametrize(
    "function, code, verdicts",
    [
        ("momentum", 0, {"EQUAL", "ROUNDING"}),  # it does not flush denormal numbers
        ("rounded", 0, {"ROUNDING"}),
        ("larger", 1, {"DIFFERS"}),
        ("nearly", 1, {"DIFFERS"}),  # seen in float64 alone
        ("finite", 1, {"EQUAL", "DIFFERS"}),
    ],
)
def test_verdicts_are_those_of_proofs(python, user, function, code, verdicts):
    target = proofs.find(f"numpy:mine:{function}")
    paths = sorted(vectors.FOLDER.glob("MomentumOptimizer-*.npz"))
    reports = {path.stem: proofs.replay(proofs.read(path), target, cause=False) for path in paths}
    expected = {name: report.verdict.name for name, report in reports.items()}
    assert set(expected.values()) == verdicts and len(expected) == 6
    assert run(python, "MomentumOptimizer", f"mine:{function}")[:2] == (code, expected)
    if function == "nearly":
        found = run(python, "MomentumOptimizer", "mine:nearly", "--float32")
        assert found[0] == 0 and set(found[1].values()) == {"ROUNDING"}


@pytest.mark.parametrize("rule", ["AdagradDecayOptimizer", "AdagradDecayOptimizerV2"])
def test_late_trainings_have_a_global_step(python, user, rule):
    code, verdicts, _ = run(python, rule, "mine:adagrad_decay")
    assert code == 0 and len(verdicts) == 8 and set(verdicts.values()) <= {"EQUAL", "ROUNDING"}


def test_damaged_files_and_errors(python, user, tmp_path):
    path = tmp_path / "MomentumOptimizer-dense.npz"
    content = bytearray(vectors.path_of("MomentumOptimizer", "dense").read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    given = "--folder", str(tmp_path)
    code, verdicts, text = run(python, "MomentumOptimizer", "mine:momentum", *given)
    assert (code, list(verdicts.values())) == (2, ["cannot be judged"]) and "is damaged" in text
    with pytest.raises(proofs.ProofError):
        proofs.read(path)
    code, _, text = run(python, "MomentumOptimizer", "mine:fails")
    assert code == 2 and "KeyError: 'no rule'" in text
    code, _, text = run(python, "MomentumOptimizer", "mine:exits")
    assert code == 2 and "SystemExit: 0" in text
    for function in "removes", "broadcasts":
        code, verdicts, text = run(python, "MomentumOptimizer", f"mine:{function}")
        assert code == 2 and set(verdicts.values()) == {"cannot be judged"}
        assert "must stay real numbers of the shape (12, 8)" in text
    code, verdicts, _ = run(python, "MomentumOptimizer", "mine:keeps_the_gradient")
    assert code == 1 and verdicts["MomentumOptimizer-dense"] == "DIFFERS"
    code, _, text = run(python, "NoOptimizer", "mine:momentum")
    assert code == 2 and "there is no rule 'NoOptimizer', but AdaBeliefOptimizer, " in text
