"""Tests `legacy-opt run --package`, with an installed package that was written for TensorFlow 1."""

import subprocess
import sys
import textwrap

import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat.old_programs.script_runner import packages
from legacy_opt.compat.old_programs.source_analysis import script_modules
from tests.support.processes.command_line import Screen, start

IS_V1 = versions.speaks_v1()
FILES = {
    "setup.py": """
        import setuptools

        setuptools.setup(name="oldrec", version="0.1", packages=["oldrec"])
        """,
    "oldrec/__init__.py": "from oldrec.model import Model\n",
    "oldrec/model.py": """
        from __future__ import print_function

        import tensorflow as tf
        from oldrec import losses

        class Model(object):
            def __init__(self, learning_rate):
                self.x = tf.placeholder(tf.float32, [None])
                self.w = tf.get_variable("w", initializer=[0.0])
                self.loss = losses.squared(self.w * self.x, 3 * self.x)
                optimizer = tf.contrib.opt.LazyAdamOptimizer(learning_rate)
                self.train_op = optimizer.minimize(self.loss)

            def fit(self, x, epochs):
                with tf.Session() as session:
                    session.run(tf.global_variables_initializer())
                    for _ in range(epochs):
                        loss, _ = session.run([self.loss, self.train_op], {self.x: x})
                    return loss

        def big_table():
            return tf.get_embedding_variable("table", 8)
        """,
    "oldrec/losses.py": """
        import tensorflow as tf

        def squared(found, expected):
            return tf.losses.mean_squared_error(expected, found)
        """,
}
SCRIPT = """
import oldrec
print(round(oldrec.Model(0.1).fit([1.0, 2.0], 100), 3))
try:
    oldrec.model.big_table()
except AttributeError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Installs the package with pip; returns the folder `site-packages`."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("e") / "site-packages"
    for name, code in FILES.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(textwrap.dedent(code))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    pip += ["--no-build-isolation", "--target", str(site), str(source)]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return site


@pytest.fixture
def run(installed, tmp_path):
    """Returns a function that runs SCRIPT with options; it returns (exit code, stdout, stderr)."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def run_script(*options):
        process = start("run", *options, script, path=[installed])
        output, errors = process.communicate(timeout=300)
        return process.returncode, output, errors

    return run_script


def ours(errors):
    return [line for line in errors.splitlines() if line.startswith("legacy-opt run: ")]


def test_an_installed_package_gets_tensorflow_2(run):
    code, output, errors = run()
    if IS_V1:
        assert code == 0 and float(output.split()[0]) < 0.01 and not ours(errors), errors
    else:
        assert (code, output) == (1, "") and "has no attribute 'placeholder'" in errors
        (line,) = ours(errors)
        assert line.startswith(
            "legacy-opt run: the package oldrec needs TensorFlow 1's names: add "
        )
        assert line.endswith("`--package oldrec` before the script."), line


def test_a_named_package_trains(run, installed):
    code, output, errors = run("--package", "oldrec")
    assert code == 0, errors
    loss, error = output.splitlines()
    assert float(loss) < 0.01  # 22.5 at first
    line = f"{installed / 'oldrec' / 'model.py'}:23: tf.get_embedding_variable: Only DeepRec has"
    assert error.startswith(line)
    assert [each.partition("warning: ")[2] for each in ours(errors) if "warning: " in each] == [
        error
    ]


# Code in a module of the installed package; whether the option --package would help.
RAISING = {
    "tf.placeholder": True,
    "tf.train.AdamOptimizer": True,
    "tf.contrib.rnn": True,
    "from tensorflow import placeholder": True,
    "from tensorflow.train import AdamOptimizer": True,
    "import tensorflow.contrib.rnn": True,
    "import tensorflow.contrib.no_such": True,
    "try:\n  tf.placeholder\nexcept AttributeError:\n  {}['x']": True,
    "try:\n  tf.placeholder\nexcept AttributeError as e:\n  raise ValueError from e": True,
    "tf.no_such_name": False,
    "from tensorflow import no_such_name": False,
    "import no_such_module": False,
    "tf.constant(0).placeholder": False,
    "None.placeholder": False,
    "{}['placeholder']": False,
}


def raised(code, module, file):
    """Runs code in a module with this name and file; returns the exception."""
    names = {"__name__": module, "__file__": str(file), "tf": tf}
    with pytest.raises(Exception) as caught:
        exec(compile(code, str(file), "exec"), names)
    return caught.value


@pytest.mark.every_lane
@pytest.mark.parametrize("code", ["tf.contrib.no_such"] if IS_V1 else RAISING)
def test_an_error_that_the_option_avoids_names_it(code, installed, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(installed))
    error = raised(code, "oldrec.model", installed / "oldrec" / "model.py")
    expected = "oldrec" if RAISING.get(code) else None
    assert packages.package_to_include(error) == expected
    for module, file in ("own", tmp_path / "own.py"), ("json.tool", subprocess.__file__):
        assert packages.package_to_include(raised(code, module, file)) is None


@pytest.mark.once
@pytest.mark.parametrize(
    "name, message",
    [
        ("oldrek", "no package 'oldrek' is installed. Did you mean 'oldrec'?"),
        ("oldrec.model", "no package 'oldrec.model' is installed. Did you mean 'oldrec'?"),
        ("", "no package '' is installed."),
        ("json", "'json' is part of Python, TensorFlow or legacy_opt"),
        ("tensorflow", "'tensorflow' is part of Python, TensorFlow or legacy_opt"),
        ("legacy_opt", "'legacy_opt' is part of Python, TensorFlow or legacy_opt"),
        ("sys", "no package 'sys' is installed"),
    ],
)
def test_wrong_names(name, message, installed, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(script_modules, "_included", [])
    monkeypatch.setattr(sys, "path", ["replaced by the command", str(installed), *sys.path])
    (tmp_path / "script.py").write_text("print('run')\n")
    for words in (["--package", name], ["--package", "oldrec", f"--package={name}"]):
        error = Screen(capsys).refused("run", *words, tmp_path / "script.py")
        assert error.startswith("legacy-opt run: --package: ") and message in error


@pytest.mark.once
def test_options_after_a_named_package_are_checked(capsys):
    for words in (["--package", "oldrec"], ["--package=oldrec"]):
        error = Screen(capsys).refused("run", *words, "--forse", "script.py")
        assert "there is no option --forse. Did you mean '--force'?" in error
