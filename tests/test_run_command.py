"""`legacy-opt run`, and the names that are missing before it runs."""

import builtins
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tensorflow as tf

from legacy_opt import compat, versions
from legacy_opt.compat import missing_names, run_command
from tests.command_line import Screen, start

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "tests" / "scripts"
v1 = tf.compat.v1

# It tells what it finds around it, and what it finds of TensorFlow into the file in PROBE.
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
    """A script with a package beside it, in a folder; returns the path of the script."""
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
    """The part of stderr that is a traceback, without the marks of Python 3.11 and later."""
    start_of_it = errors.index("Traceback (most recent call last)")
    return re.sub(r"^ *[~^]+\n", "", errors[start_of_it:], flags=re.M)


def test_a_script_runs_as_by_python_on_tensorflow_1(probe, tmp_path):
    words = ["probe.py", "--steps", "3", "--force", "-m", "--", "-x", "--help"]
    facts = tmp_path / "facts.json"
    environment = dict(os.environ, PYTHONPATH=str(ROOT), PROBE=str(facts))
    process = subprocess.Popen(
        [sys.executable, "-m", "legacy_opt", "run"] + words,
        cwd=str(tmp_path),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    code, output, errors = finish(process)
    plain = subprocess.run(
        [sys.executable] + words, cwd=str(tmp_path), capture_output=True, text=True
    )
    assert plain.returncode == 1 and "ValueError: in the end" in plain.stderr
    assert (code, output) == (plain.returncode, plain.stdout), errors
    assert traceback_in(errors) == traceback_in(plain.stderr)
    told = json.loads(facts.read_text())
    assert all(told["v1"] + told["graph"] + told["same"]), told
    contrib = "tensorflow" if versions.has_contrib() else "legacy_opt"
    assert [home.split(".")[0] for home in told["homes"]] == [contrib, "legacy_opt"]
    assert not told["keras_3"]


def lanes_losses(output):
    return [float(number) for number in re.findall(r"loss ([\d.]+) at first, ([\d.]+)", output)[0]]


def test_a_deeprec_script_trains_and_goes_on_from_its_checkpoint(tmp_path):
    script = SCRIPTS / "deeprec_style_wdl.py"
    process = start("run", script, "--steps=60", "--checkpoint", tmp_path, "--optimizer=adamasync")
    code, output, errors = finish(process)
    assert code == 0, errors
    first, last = lanes_losses(output)
    assert last < first - 0.05
    assert "from step 0" in output and "model.ckpt-60" in output
    names = {name for name, _ in tf.train.list_variables(str(tmp_path))}
    assert "dnn/hidden_0/kernel/AdamAsync" in names, sorted(names)


@pytest.mark.full
@pytest.mark.parametrize("optimizer", ["adagraddecay", "adagraddecayv2", "adamw", "adagrad"])
def test_a_deeprec_script_with_each_optimizer(optimizer, tmp_path):
    words = ["--steps", "60", "--optimizer", optimizer, "--checkpoint", tmp_path]
    code, output, errors = finish(start("run", SCRIPTS / "deeprec_style_wdl.py", *words))
    assert code == 0, errors
    first, last = lanes_losses(output)
    assert last < first - 0.05
    words[1] = "70"
    code, output, errors = finish(start("run", SCRIPTS / "deeprec_style_wdl.py", *words))
    assert code == 0 and "from step 60" in output, errors


@pytest.mark.full
def test_a_script_of_contrib_trains_in_all_its_ways():
    code, output, errors = finish(start("run", SCRIPTS / "contrib_opt_style.py"))
    assert code == 0, errors
    assert len(re.findall(r"loss 7\.122 at first, 0\.00\d at last", output)) == 4


@pytest.mark.full
def test_missing_names_stop_the_script_unless_forced(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print('begun')\nimport tensorflow as tf\ntf.get_embedding_variable\n")
    code, output, errors = finish(start("run", script))
    assert (code, output) == (1, "")
    assert "%s:3: tf.get_embedding_variable: " % script in errors and "nothing was run" in errors
    code, output, errors = finish(start("run", "--force", script))
    assert (code, output) == (1, "begun\n")
    assert "AttributeError" in traceback_in(errors) and "run_command" not in errors


@pytest.mark.full
def test_a_module_runs_by_its_name_and_exit_codes_are_the_scripts(probe):
    (probe.parent / "beside" / "__main__.py").write_text(
        "import sys\nfrom . import package\nprint(__name__, sys.argv)\nsys.exit(7)\n"
    )
    process = start("run", "-m", "beside", "-x", cwd=str(probe.parent))
    code, output, _ = finish(process)
    main = str(probe.parent / "beside" / "__main__.py")
    assert (code, output) == (7, "__main__ %s\n" % [main, "-x"])


def test_what_is_not_there_is_told_in_a_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", ["replaced by the command"] + sys.path)
    screen = Screen(capsys)
    assert "no_such_script.py" in screen.refused("run", "no_such_script.py")
    assert "no_such_module" in screen.refused("run", "-m", "no_such_module.at_all")
    assert "the following arguments are required: SCRIPT" in screen.refused("run")
    code, output, _ = screen.run("run", "--help")
    assert code == 0 and "example: legacy-opt run" in output


# Names that are missing.


@pytest.fixture
def missing(tmp_path, monkeypatch):
    """Returns what is missing in a script with these lines, as "line name"; or in several files."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def find(code, files=()):
        for name, content in dict(files).items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(content))
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(code).lstrip("\n"))
        with compat.patch_tensorflow():
            root = tf if versions.speaks_v1() else v1
            found = missing_names.find(str(script), "__main__", root)
        for each in found:
            assert each.advice.endswith((".", ")")), each
        return [
            "%s%d %s" % ("" if f.path == str(script) else Path(f.path).stem + ":", f.line, f.name)
            for f in found
        ]

    return find


# DeepRec's variables, which nobody has on any TensorFlow: it stands for all that is missing.
GONE = "tf.get_embedding_variable"
WAYS_TO_WRITE_IT = [
    "import tensorflow as tf\ntf.get_embedding_variable('x')",
    "import tensorflow\ntensorflow.get_embedding_variable('x')",
    "import tensorflow.compat.v1 as tf\ntf.get_embedding_variable('x')",
    "import tensorflow\ntensorflow.compat.v1.get_embedding_variable('x')",
    "# one line\nfrom tensorflow import get_embedding_variable as make",
    "import tensorflow as tf\nmake = tf.get_embedding_variable",
    "import tensorflow as tf\nlambda x: tf.get_embedding_variable",
]


@pytest.mark.parametrize("code", WAYS_TO_WRITE_IT)
def test_a_name_is_seen_however_it_is_written(code, missing):
    assert missing(code) == ["2 " + GONE]


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    tf.get_embedding_variable\nexcept AttributeError:\n    pass",
        "try:\n from tensorflow import get_embedding_variable\nexcept (ImportError, OSError):\n 1",
        "try:\n    tf.get_embedding_variable\nexcept:\n    pass",
        "if hasattr(tf, 'get_embedding_variable'):\n    tf.get_embedding_variable()",
        "x = hasattr(tf, 'get_embedding_variable') and tf.get_embedding_variable",
        "x = tf.get_embedding_variable if hasattr(tf, 'get_embedding_variable') else None",
        "if tf.__version__.startswith('1.'):\n    tf.get_embedding_variable",
        "OLD = tf.VERSION < '1.0'\nif OLD:\n    tf.get_embedding_variable",
        "def f(tf):\n    return tf.get_embedding_variable",
        "x = tf.train.AdamOptimizer(0.1).get_embedding_variable",
        "x = tf.Variable.get_embedding_variable",
        "tf.get_embedding_variable = print",
        "x = 'tf.get_embedding_variable'  # tf.get_embedding_variable",
        "try:\n    make = tf.get_embedding_variable\nexcept Exception:\n    make = print\nmake()",
        "try:\n    from tensorflow import get_embedding_variable as g\nexcept ImportError:\n"
        "    import json as g\ng.load",
        "from tensorflow import *\nprint.get_embedding_variable",
        "def broken(:",
    ],
)
def test_no_false_alarm(code, missing):
    assert missing("import tensorflow as tf\n" + code) == []


def test_a_guard_guards_what_it_asks_for_alone(missing):
    code = """
    import tensorflow as tf
    if hasattr(tf, "no_such_name"):
        tf.get_embedding_variable
    if hasattr(tf, "train"):
        tf.get_embedding_variable
    try:
        pass
    except ImportError:
        tf.get_embedding_variable
    try:
        tf.get_embedding_variable
    except ValueError:
        pass
    """
    assert missing(code) == [line + GONE for line in ("3 ", "5 ", "9 ", "11 ")]


def test_modules_beside_the_script_are_read_too(missing):
    found = missing(
        """
        import helper, json
        from near import one
        from near.common import tf
        import installed_nowhere
        tf.get_embedding_variable
        """,
        {
            "helper.py": "import tensorflow as tf\ntf.get_embedding_variable\nraise SystemExit",
            "near/__init__.py": "",
            "near/one.py": "from . import two\n",
            "near/two.py": "from .common import tf as flow\nflow.get_embedding_variable\n",
            "near/common.py": "import tensorflow as tf\n",
            "unused.py": "import tensorflow as tf\ntf.get_embedding_variable\n",
        },
    )
    assert found == ["helper:2 " + GONE, "two:2 " + GONE, "5 " + GONE]
    assert "helper" not in sys.modules and "near" not in sys.modules


def test_what_there_is_is_not_missed(missing):
    code = """
    import tensorflow as tf
    import tensorflow.contrib.opt as opt
    from tensorflow.contrib.opt import AdamWOptimizer, MovingAverageOptimizer
    from tensorflow.contrib.opt.python.training.sign_decay import get_linear_decay_fn
    from tensorflow.contrib.layers import optimize_loss
    from tensorflow.python.training.adam_async import AdamAsyncOptimizer
    from tensorflow.python.framework import ops
    from tensorflow.core.protobuf import config_pb2
    tf.train.AdagradDecayOptimizerV2, tf.contrib.estimator.clip_gradients_by_norm
    tf.app.flags.FLAGS.whatever, tf.logging.INFO, tf.float32.name, tf.losses.mean_squared_error
    tf.contrib.framework.get_or_create_global_step, opt.LazyAdamOptimizer
    """
    assert missing(code) == []


def test_what_this_tensorflow_gave_up_is_missed(missing):
    generation = versions.keras_facts()["generation"]
    code = (
        "import tensorflow as tf\ntf.layers.dense\ntf.nn.rnn_cell.LSTMCell\ntf.estimator.Estimator"
    )
    expected = ["2 tf.layers.dense", "3 tf.nn.rnn_cell.LSTMCell"] if generation == 3 else []
    expected += [] if versions.has_estimator() else ["4 tf.estimator.Estimator"]
    assert missing(code) == expected


if not versions.has_contrib():

    def test_what_else_contrib_had_is_missed(missing):
        code = """
        import tensorflow as tf
        from tensorflow.contrib import slim
        from tensorflow import contrib
        import tensorflow.contrib.seq2seq as seq2seq
        learn = contrib.learn
        slim.conv2d
        learn.Experiment
        contrib.opt.GGTOptimizer
        from tensorflow.contrib.layers import fully_connected, optimize_loss
        if hasattr(tf, "contrib"):
            tf.contrib.rnn.LSTMCell  # tf.contrib is there, put back, so this is reached
        if hasattr(tf.contrib, "crf"):
            tf.contrib.crf.crf_decode
        """
        assert missing(code) == [
            "2 tf.contrib.slim",
            "4 tf.contrib.seq2seq",
            "5 tf.contrib.learn",
            "6 tf.contrib.slim.conv2d",
            "7 tf.contrib.learn.Experiment",
            "8 tf.contrib.opt.GGTOptimizer",
            "9 tf.contrib.layers.fully_connected",
            "11 tf.contrib.rnn.LSTMCell",
        ]


# Imports.


def test_installed_modules_get_the_tensorflow_that_is_installed(monkeypatch):
    monkeypatch.setattr(builtins, "__import__", run_command._importing(builtins.__import__, v1))
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
