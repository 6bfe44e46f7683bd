"""Tests how `legacy-opt run` finds missing names of TensorFlow before it runs a script."""

import sys
import textwrap
from pathlib import Path

import pytest
import tensorflow as tf

from legacy_opt import compat, versions
from legacy_opt.compat.cli import run_command
from legacy_opt.compat.old_programs.old_names import moved_names, patching
from legacy_opt.compat.old_programs.source_analysis import missing_names, script_modules
from tests.support import estimators

pytestmark = pytest.mark.once

v1 = tf.compat.v1
# An example of a missing name: DeepRec has it, but no version of TensorFlow has it.
GONE = "tf.get_embedding_variable"


@pytest.fixture
def missing(tmp_path, monkeypatch):
    """Yields a function that writes a script and modules, and returns the missing names.

    The function returns strings: "line name" for the script, "module:line name" for other modules.
    """
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(patching, "_stand_ins", {})  # they depend on the packages that are here

    def find(code, files=()):
        for name, content in dict(files).items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(content))
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(code).lstrip("\n"))
        with compat.patch_tensorflow():
            root = tf if versions.speaks_v1() else v1
            found = missing_names.find(script_modules.read(str(script), "__main__"), root)
        find.found = found
        find.advice = {each.advice for each in found}
        assert all(advice.endswith(".") for advice in find.advice)
        return [
            f"{'' if f.path == str(script) else Path(f.path).stem + ':'}{f.line} {f.name}"
            for f in found
        ]

    yield find
    for name in [each for each in sys.modules if each.partition(".")[0] == "tf_slim"]:
        del sys.modules[name]  # a test may have written it


WAYS_TO_WRITE_IT = [
    "import tensorflow as tf\ntf.get_embedding_variable('x')",
    "import tensorflow\ntensorflow.get_embedding_variable('x')",
    "import tensorflow.compat.v1 as tf\ntf.get_embedding_variable('x')",
    "import tensorflow\ntensorflow.compat.v1.get_embedding_variable('x')",
    "# one line\nfrom tensorflow import get_embedding_variable as make",
    "import tensorflow as tf\nmake = tf.get_embedding_variable",
    "import tensorflow as tf\nlambda x: tf.get_embedding_variable",
    "import tensorflow as tf\ndef dead(): return tf.get_embedding_variable",
    "from tensorflow import *\ncompat.v1.get_embedding_variable",
    "\f\nimport tensorflow as tf; tf.get_embedding_variable",
]


@pytest.mark.parametrize("code", WAYS_TO_WRITE_IT)
def test_every_way_to_write_a_name_is_found(code, missing):
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
        "from tensorflow import *\nprint.get_embedding_variable\nsorted.get_embedding_variable",
        "try:\n    from tensorflow import get_embedding_variable as g\nexcept ImportError:\n"
        "    g = None\ndef f():\n    if g:\n        g.load",
        "if tf.VERSION < '1.0':\n    g = tf.get_embedding_variable\ndef f():\n    g.load",
        "def is_old():\n    return tf.__version__ < '1'\nif is_old():\n"
        "    tf.get_embedding_variable",
        "if 'get_embedding_variable' in dir(tf):\n    tf.get_embedding_variable",
        "try:\n    tf.train.Saver\nexcept AttributeError:\n    tf.get_embedding_variable",
        "def f():\n    if not hasattr(tf, 'get_embedding_variable'):\n        return 1\n"
        "    return tf.get_embedding_variable",
        "def broken(:",
        "print 'Python 2', tf.get_embedding_variable",
    ],
)
def test_guarded_uses_are_left_out(code, missing):
    assert missing("import tensorflow as tf\n" + code) == []


def test_a_guard_covers_only_the_name_that_it_checks(missing):
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
    try:
        tf.no_such_name
    except AttributeError:
        tf.get_embedding_variable
    if tf.VERSION < "1.4":
        raise ValueError("Too old.")
    def f():
        if hasattr(tf, "get_embedding_variable"):
            return 1
    tf.get_embedding_variable
    """
    lines = "3 ", "5 ", "9 ", "11 ", "17 ", "23 "
    assert missing(code) == [line + GONE for line in lines]


def test_local_modules_that_the_script_imports_are_read(missing):
    found = missing(
        """
        import helper, json
        from near import one
        from near.common import tf
        from near.stars import *
        import installed_nowhere
        tf.get_embedding_variable
        flow.get_embedding_variable
        guarded.load
        """,
        {
            "helper.py": "import tensorflow as tf\ntf.get_embedding_variable\nraise SystemExit",
            "near/__init__.py": "",
            "near/one.py": "from . import two\n",
            "near/two.py": "from .common import tf as flow\nflow.get_embedding_variable\n",
            "near/common.py": "import tensorflow as tf\n",
            "near/stars.py": """
            import tensorflow as flow
            try:
                guarded = flow.get_embedding_variable
            except AttributeError:
                guarded = None
            """,
            "unused.py": "import tensorflow as tf\ntf.get_embedding_variable\n",
        },
    )
    assert found == ["helper:2 " + GONE, "two:2 " + GONE, "6 " + GONE, "7 " + GONE]
    assert "helper" not in sys.modules and "near" not in sys.modules


def test_a_module_is_read_with_its_packages(missing, tmp_path):
    uses = "import tensorflow as tf\ntf.get_embedding_variable\n"
    files = {"pack/__init__.py": uses, "pack/__main__.py": "from . import one", "pack/one.py": uses}
    missing("", files)
    for module in "__main__", "one":
        path = str(tmp_path / "pack" / (module + ".py"))
        found = missing_names.find(script_modules.read(path, "pack." + module), tf)
        assert [Path(each.path).stem for each in found] == ["__init__", "one"]


def test_existing_and_patched_names_are_not_missing(missing):
    code = """
    import tensorflow as tf
    import tensorflow.contrib.opt as opt
    from tensorflow.contrib.opt import AdamWOptimizer, MovingAverageOptimizer
    from tensorflow.contrib.opt.python.training.sign_decay import get_linear_decay_fn
    from tensorflow.contrib.layers import optimize_loss
    from tensorflow.contrib.tpu.python.tpu.tpu_optimizer import CrossShardOptimizer
    from tensorflow.contrib.framework.python.ops.variables import get_or_create_global_step
    from tensorflow.python.training.adam_async import AdamAsyncOptimizer
    from tensorflow.python.framework import ops
    from tensorflow.core.protobuf import config_pb2
    tf.train.AdagradDecayOptimizerV2, tf.contrib.estimator.clip_gradients_by_norm
    tf.app.flags.FLAGS.whatever, tf.logging.INFO, tf.float32.name, tf.losses.mean_squared_error
    tf.contrib.framework.get_or_create_global_step, opt.LazyAdamOptimizer
    """
    assert missing(code) == []


REMOVED = """import tensorflow as tf
tf.layers.dense
tf.nn.rnn_cell.LSTMCell
tf.estimator.Estimator
"""


@estimators.needed
def test_names_from_other_packages_are_not_missing(missing):
    assert missing(REMOVED) == []


def test_names_are_missing_without_the_packages(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf_keras.api._v1.keras", None)  # importing it raises an error
    monkeypatch.setattr(versions.estimators, "_installed_version", lambda package: None)
    generation = versions.keras_facts()["generation"]
    expected = ["2 tf.layers.dense", "3 tf.nn.rnn_cell.LSTMCell"] if generation == 3 else []
    expected += [] if versions.has_own_estimator() else ["4 tf.estimator.Estimator"]
    assert missing(REMOVED) == expected


if not versions.has_contrib():

    @pytest.mark.keras2  # contrib.rnn needs it
    def test_other_names_of_contrib_are_missing(missing):
        code = """
        import tensorflow as tf
        from tensorflow.contrib import slim
        from tensorflow import contrib
        import tensorflow.contrib.tensor_forest as forest
        learn = contrib.learn
        slim.conv2d
        learn.Experiment
        contrib.opt.GGTOptimizer
        from tensorflow.contrib.layers import fully_connected, optimize_loss
        if hasattr(tf, "contrib"):
            tf.contrib.rnn.LSTMCell  # patched TensorFlow has it
        if hasattr(tf.contrib, "crf"):
            tf.contrib.crf.crf_decode
        """
        assert missing(code) == [
            "2 tf.contrib.slim",
            "4 tf.contrib.tensor_forest",
            "6 tf.contrib.slim.conv2d",
            "7 tf.contrib.learn.Experiment",
            "8 tf.contrib.opt.GGTOptimizer",
            "9 tf.contrib.layers.fully_connected",
        ]

    def test_run_prints_each_advice_once(missing, capsys):
        missing(f"import tensorflow as tf\n{GONE}\n{GONE}\nx = lambda: {GONE}")
        assert run_command._report(missing.found, force=False)
        first, second, third, _ = capsys.readouterr().err.splitlines()
        assert "Only DeepRec has EmbeddingVariables" in first
        assert second.endswith(f"script.py:3: {GONE}: see above")
        assert "warning" in third and third.endswith(f"script.py:4: {GONE}: see above")

    def test_the_advice_says_if_a_package_is_installed(missing):
        code = "import tensorflow.contrib.slim as slim\nslim.conv2d"
        assert missing(code) == ["1 tf.contrib.slim", "2 tf.contrib.slim.conv2d"]
        assert missing.advice == {moved_names.SLIM}
        # A folder of the user is not imported.
        missing(code, {"tf_slim/__init__.py": "raise SystemExit('imported')"})
        assert missing.advice == {moved_names.SLIM}
        missing(code, {"tf_slim/__init__.py": "", "tf_slim-1.1.0.dist-info/METADATA": ""})
        assert missing.advice == {"tf_slim has no conv2d."}
