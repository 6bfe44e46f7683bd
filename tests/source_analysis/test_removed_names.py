"""Tests that `legacy-opt audit` lists all uses of names that newer TensorFlows have removed."""

import textwrap

import pytest
import tensorflow as tf

from legacy_opt import compat, versions
from legacy_opt.compat.old_programs import old_names
from legacy_opt.compat.old_programs.source_analysis import missing_names, script_modules
from legacy_opt.compat.old_programs.source_analysis.optimizer_uses import audit
from tests.support.paths import ROOT
from tests.support.processes.command_line import Screen
from tests.tools import names_of_tensorflow_1

STEP = "tf.contrib.framework.get_or_create_global_step"


@pytest.fixture
def removed(tmp_path):
    """Returns a function that audits code, and returns "line:column status name" of each use."""

    def run(code):
        (tmp_path / "a.py").write_text("import tensorflow as tf\n" + code)
        uses = [use for use in audit([str(tmp_path)])[0] if use.kind == "removed"]
        run.uses = uses
        return [f"{use.line}:{use.column} {use.status} {use.name}" for use in uses]

    return run


WAYS_TO_WRITE_IT = {
    "tf.contrib.slim.conv2d(x)": ["2:1 change tf.contrib.slim.conv2d"],
    "x = [tf.contrib.a.b.c.D.e, tf.contrib.f]": [
        "2:6 manual tf.contrib.a.b.c.D.e",
        "2:28 manual tf.contrib.f",
    ],
    "from tensorflow.contrib import slim as s\ns.conv2d(s.flatten(x))": [
        "2:32 change tf.contrib.slim",
        "3:1 change tf.contrib.slim.conv2d",
        "3:10 change tf.contrib.slim.flatten",
    ],
    "import tensorflow.contrib.rnn as r, json\ncell = r.LSTMCell\ncell(3)": [
        "2:8 change tf.contrib.rnn",
        "3:8 change tf.contrib.rnn.LSTMCell",
    ],
    "from tensorflow.contrib.layers import (\n  fully_connected as fc,\n  flatten)\nfc(x)": [
        "3:3 change tf.contrib.layers.fully_connected",
        "4:3 change tf.contrib.layers.flatten",
        "5:1 change tf.contrib.layers.fully_connected",
    ],
    "import tensorflow.compat.v1 as t\nlayers = t.contrib.layers\nlayers.batch_norm(x)": [
        "3:10 change tf.contrib.layers",
        "4:1 change tf.contrib.layers.batch_norm",
    ],
    "class A:\n  s = tf.contrib.slim\n  def f(self):\n    self.s.conv2d": [
        "3:7 change tf.contrib.slim",
        "5:5 change tf.contrib.slim.conv2d",
    ],
    "from tensorflow.contrib.image.python.ops import *\nprint(x)": [
        "2:1 manual tf.contrib.image.python.ops"
    ],
    "tf.contrib.framework.python.ops.variables.get_or_create_global_step()": ["2:1 change " + STEP],
    "getattr(tf, 'contrib').slim.conv2d(getattr(tf.contrib, 'x'))": [
        "2:1 change tf.contrib.slim.conv2d",
        "2:36 manual tf.contrib.x",
    ],
    "getattr(tf.contrib.layers, 'conv2d')": ["2:1 change tf.contrib.layers.conv2d"],
    "getattr(f(tf.contrib.x), 'y')": ["2:11 manual tf.contrib.x"],
    "import importlib\nimportlib.import_module('tensorflow.contrib.slim')": [
        "3:1 change tf.contrib.slim"
    ],
    "def f(x):\n  return x or tf.contrib.slim\nf(1).conv2d(x)": [
        "3:15 change tf.contrib.slim",
        "4:1 change tf.contrib.slim.conv2d",
    ],
    "getattr(tf, 'contrib', None)": [],
    "tf.get_embedding_variable('x')": ["2:1 manual tf.get_embedding_variable"],
    "from tensorflow.python import pywrap_tensorflow as p\np.NewCheckpointReader(x)": [
        "3:1 change tf.python.pywrap_tensorflow.NewCheckpointReader"
    ],
    "tf.layers.dense(x, 3)": ["2:1 stays tf.layers.dense"],
    "tf.compat.v1.estimator.Estimator(f)": ["2:1 change tf.estimator.Estimator"],
    "from tensorflow import *\ncontrib.layers.conv2d(contrib)": [
        "3:1 change tf.contrib.layers.conv2d",
        "3:23 change tf.contrib",
    ],
    "from tensorflow import *\nwith open(x) as layers:\n  layers.read()": [],
    "from tensorflow import *\ntry:\n  f()\nexcept E as layers:\n  layers.args": [],
    "from tensorflow import *\nstr.contrib; print.x; no_such.contrib": [],
    "from tensorflow.examples.tutorials.mnist import input_data as i\ni.read_data_sets(x)": [
        "2:49 change tf.examples.tutorials.mnist.input_data",
        "3:1 change tf.examples.tutorials.mnist.input_data.read_data_sets",
    ],
    "from tensorflow.contrib.opt.python.training import weight_decay_optimizers as w\nw.x": [
        "2:52 change tf.contrib.opt.python.training.weight_decay_optimizers",
        "3:1 manual tf.contrib.opt.python.training.weight_decay_optimizers.x",
    ],
    "import tensorflow.contrib.opt.python.training.sign_decay as s": [
        "2:8 change tf.contrib.opt.python.training.sign_decay"
    ],
    "from tensorflow.contrib.opt.python import training": [
        "2:43 change tf.contrib.opt.python.training"
    ],
    "from tensorflow.contrib.opt.python.training import matrix_functions": [
        "2:52 manual tf.contrib.opt.python.training.matrix_functions"
    ],
    "tf.Session(); tf.layer; tf.contribution; tf.train.AdamOptimizer; tf.contrib = 1": [],
    "def f(tf):\n  return tf.contrib": [],
}


@pytest.mark.once
@pytest.mark.parametrize("code", WAYS_TO_WRITE_IT)
def test_every_way_to_write_a_removed_name_is_found(code, removed):
    assert removed(code) == WAYS_TO_WRITE_IT[code]


@pytest.mark.once
def test_the_replacement_is_named(removed):
    removed("tf.contrib.framework.get_or_create_global_step()")
    (use,) = removed.uses
    assert use.instead == "tf.compat.v1.train.get_or_create_global_step"


@pytest.mark.once
@pytest.mark.parametrize(
    "name, advice",
    [
        ("layers.dense", "TF_USE_LEGACY_KERAS=1"),
        ("nn.rnn_cell.GRUCell", "TF_USE_LEGACY_KERAS=1"),
        ("contrib.lite.TFLiteConverter", "tf.lite"),
        ("contrib.util.make_tensor_proto", "tf.make_tensor_proto"),
        ("contrib.util.constant_value", "tf.get_static_value"),
        ("contrib.image.rotate", "tfa.image"),
        ("contrib.tensorboard.plugins.projector", "tensorboard.plugins.projector"),
    ],
)
def test_the_advice_names_the_new_home(removed, name, advice):
    removed("tf." + name)
    (use,) = removed.uses
    assert advice in f"{use.advice} {use.instead}".replace("tf.contrib", "").replace(
        ".compat.v1", ""
    )


@pytest.mark.once
def test_a_star_import_has_the_advice_on_its_module(tmp_path):
    (tmp_path / "a.py").write_text("from tensorflow.contrib.crf import *\nprint(x)\n")
    ((use,), _) = audit([str(tmp_path)])
    assert (use.kind, use.status, use.name) == ("star import", "manual", "tf.contrib.crf")
    assert "tfa.text has one of its cells, in TensorFlow Addons" in use.advice


@pytest.mark.once
def test_an_optimizer_of_contrib_is_listed_once(tmp_path):
    (tmp_path / "a.py").write_text("import tensorflow as tf\ntf.contrib.opt.LazyAdamOptimizer(1)\n")
    ((use,), _) = audit([str(tmp_path)])
    assert (use.kind, use.status) == ("constructor", "change")


@pytest.mark.once
@pytest.mark.parametrize(
    "code",
    [
        "if hasattr(tf, 'contrib') and hasattr(tf.contrib, 'slim'):\n  tf.contrib.slim.conv2d",
        "if hasattr(tf, 'contrib'):\n  if hasattr(tf.contrib, 'slim'):\n    tf.contrib.slim.conv2d",
        "if hasattr(tf, 'contrib'):\n  tf.contrib.framework.get_or_create_global_step",
        "try:\n  from tensorflow.contrib import slim\nexcept ImportError:\n  slim = None\nslim.x",
        "if tf.__version__ < '2':\n  tf.contrib.slim.conv2d",
    ],
)
def test_guarded_uses_stay(code, removed):
    assert {use.split()[1] for use in removed(code)} == {"stays"}
    assert {use.advice for use in removed.uses} == {"The code expects that it may be missing."}


@pytest.mark.once
@pytest.mark.parametrize(
    "code",
    [
        "if hasattr(tf, 'contrib'):\n  tf.contrib.slim.conv2d",
        "if 'contrib' in dir(tf):\n  slim = tf.contrib.slim\nslim.conv2d",
        "if not hasattr(tf, 'contrib'):\n  x = 1\nelse:\n  tf.contrib.slim.conv2d",
    ],
)
def test_a_check_that_succeeds_under_run_is_named(code, removed):
    """`legacy-opt run` provides tf.contrib, so the code after this check uses missing names."""
    assert {use.split()[1] for use in removed(code)} == {"stays"}
    use = removed.uses[-1]
    assert use.name == "tf.contrib.slim.conv2d"
    assert "Under legacy-opt run tf.contrib exists, but not this name" in use.advice
    assert "The package tf_slim has it" in use.advice


@pytest.mark.once
@pytest.mark.parametrize("import_", ["from utils import *", "from between import *"])
@pytest.mark.parametrize(
    "bound, used",
    [
        ("from tensorflow.contrib import layers", "layers.conv2d(1)"),
        ("from tensorflow.contrib.layers import conv2d", "conv2d(1)"),
        ("from tensorflow import *", "contrib.layers.conv2d(1)"),
        ("from tensorflow import *\nfrom os import *", None),
    ],
)
def test_names_of_a_star_import_of_another_file(tmp_path, import_, bound, used):
    (tmp_path / "utils.py").write_text(bound + "\n")
    (tmp_path / "between.py").write_text("from utils import *\nfrom empty import *\n")
    (tmp_path / "empty.py").write_text("")
    code = f"{import_}\n{used or 'no_such.contrib(print, str.contrib)'}\n"
    (tmp_path / "main.py").write_text(code)
    uses = [use for use in audit([str(tmp_path)])[0] if use.path.endswith("main.py")]
    expected = [(2, "change", "tf.contrib.layers.conv2d")] if used else []
    assert [(use.line, use.status, use.name) for use in uses] == expected


@pytest.mark.once
def test_names_of_a_private_module_that_run_provides(tmp_path):
    code = "from tensorflow.contrib.opt.python.training import weight_decay_optimizers as w\n"
    (tmp_path / "a.py").write_text(code + "w.AdamWOptimizer(0.1)\n")
    uses, _ = audit([str(tmp_path)])
    assert [(use.line, use.status) for use in uses] == [(1, "change"), (2, "change")]
    assert uses[1].instead == "legacy_opt.AdamWOptimizer"


@pytest.mark.once
def test_a_guard_in_another_file_changes_nothing(tmp_path):
    guarded = "try:\n  from tensorflow.contrib import slim\nexcept ImportError:\n  slim = None\n"
    (tmp_path / "a.py").write_text(guarded)
    (tmp_path / "b.py").write_text("from tensorflow.contrib import slim\nslim.conv2d(x)\n")
    uses, _ = audit([str(tmp_path)])
    assert [use.status for use in uses] == ["stays", "change", "change"]


@pytest.mark.once
def test_the_command_lists_removed_names_and_its_page_their_kind(tmp_path, capsys):
    (tmp_path / "a.py").write_text(f"import tensorflow as tf\n{STEP}()\n")
    screen = Screen(capsys)
    (use,) = screen.json("audit", tmp_path / "a.py")["uses"]
    assert (use["kind"], use["name"], use["status"]) == ("removed", STEP, "change")
    (tmp_path / "a.py").write_text("import tensorflow as tf\ntf.contrib.image.rotate(x)\n")
    code, output, _ = screen.run("audit", tmp_path / "a.py")
    assert code == 1 and "tfa.image has some of it, in TensorFlow Addons" in output
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert "\n| removed |" in page


@pytest.mark.every_lane
def test_audit_has_the_advice_of_run(tmp_path):
    code = """
    import tensorflow as tf
    from tensorflow.contrib import slim
    slim.conv2d(x)
    tf.contrib.seq2seq.BeamSearchDecoder(x)
    tf.contrib.opt.GGTOptimizer()
    tf.get_embedding_variable("x")
    tf.contrib.training.SequenceQueueingStateSaver
    """
    (tmp_path / "a.py").write_text(textwrap.dedent(code))
    with compat.patch_tensorflow():
        root = tf if versions.speaks_v1() else tf.compat.v1
        missing = missing_names.find(script_modules.read(str(tmp_path / "a.py"), "__main__"), root)
    advice = {(use.line, use.name): use.advice for use in audit([str(tmp_path)])[0]}
    assert len(missing) == (1 if versions.has_contrib() else 6)
    assert {(each.line, each.name): each.advice for each in missing}.items() <= advice.items()


@pytest.mark.every_lane
def test_the_table_has_every_removed_name_of_tensorflow_1():
    names = names_of_tensorflow_1.recorded()
    if versions.has_contrib():
        assert names == names_of_tensorflow_1.names()
    lacking = {name for name in names if missing_names.look_up(name, tf.compat.v1)[1]}
    removed = {name for name in names if old_names.is_removed(name)}
    assert lacking <= removed
    if not versions.has_own_estimator():  # TensorFlow 2.16 and newer lack all names of the table
        there = removed - lacking
        assert all(name.startswith(("tf.estimator.", "tf.layers.", "tf.nn.")) for name in there)
