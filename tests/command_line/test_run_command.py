"""Tests of `legacy-opt run`: scripts, modules, missing names and exit codes."""

import builtins
import functools
import json
import os
import re
import shutil
import sys

import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat.old_programs.script_runner import runner, user_imports
from tests.support import estimators
from tests.support.paths import ROOT
from tests.support.processes import programs
from tests.support.processes.command_line import Screen, start

SCRIPTS = ROOT / "tests" / "scripts"
v1 = tf.compat.v1


@pytest.mark.once
def test_a_script_that_does_not_exist(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    error = Screen(capsys).refused("run", "nix.py")
    assert error == "legacy-opt run: There is no file 'nix.py'.\n"


def test_json_prints_the_scan_and_does_not_run(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import tensorflow as tf\nprint('runs')\ntf.contrib.nothing.at_all()\n")
    words = ("-m", "legacy_opt", "run", "--json", script)
    done = programs.run(*words, seconds=120)
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["runs"], facts["races"]) == (1, False, [])
    (missing,) = facts["missing"]
    assert (missing["path"], missing["line"]) == (str(script), 3)
    assert missing["name"] == "tf.contrib.nothing.at_all" and missing["is_certain"]
    script.write_text("import tensorflow as tf\nprint('runs')\n")
    done = programs.run(*words, seconds=120)
    assert (done.returncode, json.loads(done.stdout)["runs"]) == (0, True)


# A script that prints facts about its process. If the environment variable PROBE is set, the script
# also writes facts about TensorFlow to the path in PROBE.
PROBE = """
import json
import os
import sys

from beside import package
from beside.package import deep

def facts_of_tensorflow():
    import tensorflow
    import tensorflow as tf
    import tensorflow.compat.v1 as tf1
    import tensorflow.contrib.opt as opt
    from tensorflow import layers
    from tensorflow.contrib.layers import optimize_loss
    from tensorflow.keras.layers import Dense
    from tensorflow.train import AdamOptimizer
    from tensorflow.python.framework import ops

    return {
        "v1": [tensorflow is tf, tf is package.tf, hasattr(tf, "Session"), hasattr(tf1, "Session")],
        "graph": [not tf.executing_eagerly(), not tf.resource_variables_enabled()],
        "same": [
            opt is tf.contrib.opt,
            layers.dense is tf.layers.dense,
            Dense is tf.keras.layers.Dense,
            AdamOptimizer is tf.train.AdamOptimizer is tf1.train.AdamOptimizer,
            tf1.train is tf.compat.v1.train,
            tf.compat.v1.train.AdamAsyncOptimizer is tf.train.AdamAsyncOptimizer,
            tf.compat.v1.GraphKeys is tf.GraphKeys,
            ops.get_default_graph() is tf.get_default_graph(),
            optimize_loss is tf.contrib.layers.optimize_loss,
        ],
        "homes": [opt.AdamWOptimizer.__module__, tf.train.AdamAsyncOptimizer.__module__],
        "keras_3": hasattr(tf.keras, "ops"),
    }

if __name__ == "__main__":
    if "PROBE" in os.environ:
        with open(os.environ["PROBE"], "w") as file:
            json.dump(facts_of_tensorflow(), file)
    print(sys.argv, __name__, __file__, __package__, __spec__, type(__loader__).__name__)
    print(sys.path[0], sys.modules["__main__"].PROBED, type(__builtins__).__name__)
    print(package.__name__, deep.__name__)
    try:
        deep.fail()
    except KeyError as error:
        raise ValueError("in the end") from error
"""
PROBE = PROBE.replace("def facts", "PROBED = 1\n\ndef facts", 1)


@pytest.fixture
def probe(tmp_path):
    """Writes the script PROBE and the packages that PROBE imports; returns the script's path."""
    package = tmp_path / "beside" / "package"
    package.mkdir(parents=True)
    (tmp_path / "beside" / "__init__.py").write_text("")
    (package / "__init__.py").write_text(
        "import os\nif 'PROBE' in os.environ:\n    import tensorflow as tf\n"
    )
    (package / "deep.py").write_text("def fail():\n    return {}['key']\n")
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    return script


def finish(process):
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def traceback_in(errors):
    """Returns the traceback in `errors`, without the ^^^ marks of Python 3.11 and newer."""
    start_of_it = errors.index("Traceback (most recent call last)")
    return re.sub(r"^ *[~^]+\n", "", errors[start_of_it:], flags=re.M)


def run_to_the_end(*words, **options):
    return finish(start("run", *words, **options))


@pytest.mark.keras2
@pytest.mark.parametrize("words", [["--steps", "3", "--force", "-m", "--", "-x", "--help"]])
def test_a_script_runs_as_by_python_on_tensorflow_1(words, probe, tmp_path, monkeypatch):
    words = ["probe.py", "--"] + words
    plain = programs.run_in_new_python(*words, seconds=120, folder=tmp_path)
    assert plain.returncode == 1 and "ValueError: in the end" in plain.stderr
    facts = tmp_path / "facts.json"
    monkeypatch.setenv("PROBE", str(facts))
    code, output, errors = run_to_the_end(*words, cwd=str(tmp_path))
    assert (code, output) == (plain.returncode, plain.stdout), errors
    assert traceback_in(errors) == traceback_in(plain.stderr)
    found = json.loads(facts.read_text())
    assert all(found["v1"] + found["graph"] + found["same"]), found
    contrib = "tensorflow" if versions.has_contrib() else "legacy_opt"
    assert [home.split(".")[0] for home in found["homes"]] == [contrib, "legacy_opt"]
    assert not found["keras_3"]


def losses(output):
    """Returns (first loss, last loss) for each training whose losses were printed."""
    found = re.findall(r"loss ([\d.]+) at first, ([\d.]+)", output)
    return [(float(first), float(last)) for first, last in found]


@pytest.mark.keras2  # tf.layers
@pytest.mark.parametrize("optimizer", ["adamasync"])
def test_a_script_of_deeprec_trains(optimizer, tmp_path):
    words = ["--steps=60", "--checkpoint", tmp_path, "--optimizer", optimizer]
    code, output, errors = run_to_the_end(SCRIPTS / "deeprec_style_wdl.py", *words)
    assert code == 0, errors
    ((first, last),) = losses(output)
    assert last < first - 0.05
    assert "from step 0" in output and "model.ckpt-60" in output
    names = {name for name, _ in tf.train.list_variables(str(tmp_path))}
    assert "dnn/hidden_0/kernel/AdamAsync" in names, sorted(names)


@estimators.needed
def test_an_unchanged_script_with_estimators_trains_and_exports(tmp_path):
    words = ["--train_steps", "30", "--model_dir", tmp_path]
    code, output, errors = run_to_the_end(SCRIPTS / "estimator_wide_deep.py", *words)
    assert code == 0, errors
    assert re.match(r"step 30, accuracy 0\.[5-9]\d\n\d+ of 200 .*\nexported: True\n$", output)
    slots = {name for name, _ in tf.train.list_variables(str(tmp_path)) if "/Adam" in name}
    assert any(name.startswith("dnn/hiddenlayer_0/kernel/") for name in slots), slots


@pytest.mark.parametrize("name", ["tf.get_embedding_variable"])
def test_missing_names_stop_the_script(name, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"print('begun')\nimport tensorflow as tf\n{name}\n'\\d'\n")
    code, output, errors = run_to_the_end(script)
    assert (code, output) == (1, "")
    assert "SyntaxWarning" not in errors  # Python warns only of files that it runs
    assert f"{script}:3: {name}: " in errors and "nothing was run" in errors


def test_a_race_of_berts_schedule_is_said_once(tmp_path):
    (tmp_path / "optimization.py").write_text(
        "import tensorflow as tf\n"
        "def create_optimizer(pairs):\n"
        "  step = tf.train.get_or_create_global_step()\n"
        "  rate = tf.train.polynomial_decay(0.1, step, 9)\n"
        "  train_op = tf.train.AdamOptimizer(rate).apply_gradients(pairs)\n"
        "  return tf.group(train_op, [step.assign(step + 1)])\n"
    )
    script = tmp_path / "script.py"
    script.write_text("import optimization\nfrom optimization import create_optimizer\n")
    code, output, errors = run_to_the_end(script)
    assert (code, output) == (0, "")
    (line,) = [each for each in errors.splitlines() if "legacy-opt run" in each]
    place = f"legacy-opt run: warning: {tmp_path}{os.sep}optimization.py:6: Nothing orders this "
    assert line.startswith(place) and "legacy-opt docs weight_decay" in line


@pytest.mark.full
def test_a_script_of_deeprec_resumes_from_its_checkpoint_with_each_optimizer(tmp_path):
    shutil.copy(str(SCRIPTS / "deeprec_style_wdl.py"), str(tmp_path))
    each = tmp_path / "each.py"
    each.write_text(
        "import sys\n"
        "import tensorflow as tf\n"
        "import deeprec_style_wdl as script\n"
        "for words in sys.argv[1:]:\n"
        "    script.FLAGS(['script'] + words.split())\n"
        "    with tf.Graph().as_default():\n"
        "        script.main([])\n"
    )
    names = ["adagraddecay", "adagraddecayv2", "adamw", "adagrad"]
    words = [
        f"--steps={steps} --optimizer={name} --checkpoint={tmp_path / name}"
        for name in names
        for steps in (60, 70)
    ]
    code, output, errors = run_to_the_end(each, *words)
    assert code == 0, errors
    assert re.findall(r"from step (\d+)", output) == ["0", "60"] * 4
    for first, last in losses(output)[::2]:
        assert last < first - 0.05, output


@pytest.mark.full
def test_a_script_of_contrib_trains():
    code, output, errors = run_to_the_end(SCRIPTS / "contrib_opt_style.py")
    assert code == 0, errors
    assert len(re.findall(r"loss 7\.122 at first, 0\.00\d at last", output)) == 4


@pytest.mark.full
def test_with_force_a_script_runs_despite_missing_names(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print('begun')\nimport tensorflow as tf\ntf.get_embedding_variable\n")
    code, output, errors = run_to_the_end("--force", script)
    assert (code, output) == (1, "begun\n")
    assert f"{script}:3: " in errors and "nothing was run" not in errors
    assert "AttributeError" in traceback_in(errors) and "run_command" not in errors


@pytest.mark.full
def test_a_module_runs_by_its_name_with_its_own_exit_code(probe):
    (probe.parent / "beside" / "__main__.py").write_text(
        "import sys\nfrom . import package\nprint(__name__, sys.argv)\nsys.exit(7)\n"
    )
    code, output, _ = run_to_the_end("-m", "beside", "-x", cwd=str(probe.parent))
    main = str(probe.parent / "beside" / "__main__.py")
    assert (code, output) == (7, f"__main__ {[main, '-x']}\n")


def test_bad_input_is_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", ["replaced by the command"] + sys.path)
    screen = Screen(capsys)
    assert "no_such_script.py" in screen.refused("run", "no_such_script.py")
    assert str(tmp_path) in screen.refused("run", tmp_path)
    assert f"'{os.devnull}' is a character device" in screen.refused("run", os.devnull)
    assert "no_such_module" in screen.refused("run", "-m", "no_such_module.at_all")
    assert "the following arguments are required: SCRIPT" in screen.refused("run")
    code, output, _ = screen.run("run", "--help")
    assert code == 0 and "example: legacy-opt run" in output
    assert "builtins.__import__ is replaced" in output


# Imports.


def test_installed_modules_import_the_installed_tensorflow(monkeypatch):
    monkeypatch.setattr(builtins, "__import__", builtins.__import__)
    user_imports.add_hook(functools.partial(runner._import, v1))
    code = "import tensorflow as tf\nfrom tensorflow import train"
    installed = os.path.join(os.path.dirname(tf.__path__[0]), "some_package", "module.py")
    files = {installed: tf, str(ROOT / "own.py"): v1}
    for file, expected in files.items():
        names = {"__name__": "module", "__file__": file}
        exec(code, names)
        assert names["tf"] is expected and names["train"] is expected.train
    names = {"__name__": "legacy_opt.module", "__file__": str(ROOT / "legacy_opt" / "module.py")}
    exec(code, names)
    assert names["tf"] is tf
