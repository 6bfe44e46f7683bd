"""`legacy-opt audit`: every use of an optimizer, and what is to be done about it."""

import json
import subprocess
import sys
import textwrap

import pytest

from legacy_opt.compat.audit import audit
from tests.command_line import ROOT, Screen

V1 = "tf.compat.v1.train."


@pytest.fixture
def uses(tmp_path):
    """Audits files by name; returns (kind, line, column, status, name, instead) of each use."""

    def run(**files):
        for name, code in files.items():
            path = tmp_path / (name.replace("_in_", "/") + ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(code), encoding="utf-8")
        found, count = audit([str(tmp_path)])
        assert count == len(files)
        return [(u.kind, u.line, u.column, u.status, u.name, u.instead) for u in found]

    return run


ADAM = ("tf.train.AdamOptimizer", V1 + "AdamOptimizer")


@pytest.mark.parametrize(
    "code, kinds",
    [
        ("import tensorflow as tf\ntf.train.AdamOptimizer(0.1)", ["constructor"]),
        ("import tensorflow\ntensorflow.train.AdamOptimizer(0.1)", ["constructor"]),
        ("from tensorflow import train as t\nt.AdamOptimizer(0.1)", ["constructor"]),
        ("from tensorflow.train import AdamOptimizer as A\nA(0.1)", ["import", "constructor"]),
        (
            "from tensorflow.python.training import adam\nx = adam.AdamOptimizer\nx(0.1)",
            ["mention", "constructor"],
        ),
        (
            "import tensorflow as tf\no = {'adam': tf.train.AdamOptimizer}\no[name](0.1)",
            ["mention", "constructor"],
        ),
        (
            "import tensorflow as tf\nclass A:\n  o = tf.train\n  def f(self):\n"
            "    self.o = tf.train.AdamOptimizer\n    self.o(0.1)",
            ["mention", "constructor"],
        ),
        (
            "import tensorflow as tf\ndef f(o=tf.train.AdamOptimizer):\n  return o(0.1)",
            ["mention", "constructor"],
        ),
        (
            "import tensorflow as tf\ndef f():\n  return tf.train\nf().AdamOptimizer(0.1)",
            ["constructor"],
        ),
        ("import tensorflow as tf\ngetattr(tf.train, 'AdamOptimizer')(0.1)", ["constructor"]),
    ],
)
def test_aliases_are_followed(uses, code, kinds):
    found = uses(a=code)
    assert sorted(use[0] for use in found) == sorted(kinds)
    assert {use[3:] for use in found} == {("change",) + ADAM}


@pytest.mark.parametrize(
    "code, status, instead",
    [
        ("tf.compat.v1.train.AdamOptimizer(1)", "stays", None),
        ("tf.train.AdagradDecayOptimizer(1)", "change", "legacy_opt.AdagradDecayOptimizer"),
        ("tf.contrib.opt.LazyAdamOptimizer(1)", "change", "legacy_opt.LazyAdamOptimizer"),
        ("tf.contrib.layers.optimize_loss(1)", "change", "legacy_opt.optimize_loss"),
        ("tf.contrib.training.create_train_op(1)", "change", "legacy_opt.create_train_op"),
        ("tf.contrib.slim.learning.create_train_op(1)", "change", "legacy_opt.create_train_op"),
        ("tf.contrib.opt.GGTOptimizer(1)", "person", None),
        ("tf.contrib.strange.StrangeOptimizer(1)", "person", None),
        ("tf.train.StrangeOptimizer(1)", "person", None),
        ("tf.keras.optimizers.Adam(0.1)", "stays", None),
        ("tf.keras.optimizers.Adam(lr=0.1)", "change", None),
        ("tf.keras.optimizers.Adam(0.1, decay=0.1)", "change", None),
        ("tfa.optimizers.AdamW(1)", "change", "legacy_opt.AdamWOptimizer"),
        ("tfa.optimizers.Strange(1)", "person", None),
        (
            "optimization.AdamWeightDecayOptimizer(1)",
            "change",
            "legacy_opt.AdamWeightDecayOptimizer",
        ),
        ("legacy_opt.LAMBOptimizer(1)", "stays", None),
        ("getattr(tf.train, name + 'Optimizer')(1)", "person", None),
        ("x.swapping_saver()", "stays", None),
        ("model.compile('adam')", "stays", None),
        ("slim.optimize_loss(1, 2, optimizer='Nonsense')", "person", None),
        (
            "tf.estimator.DNNClassifier(optimizer='Adagrad')",
            "change",
            "tf.compat.v1.estimator.DNNClassifier",
        ),
    ],
)
def test_what_is_to_be_done(uses, code, status, instead):
    imports = "import tensorflow as tf, tensorflow_addons as tfa, legacy_opt\n"
    imports += "from bert import optimization\n"
    found = uses(a=imports + code)
    assert (status, instead) in {(use[3], use[5]) for use in found}


@pytest.mark.parametrize(
    "code",
    [
        "tf.train.get_global_step()",
        "tf.train.Saver(1)",
        "tf.OptimizerOptions.L0",
        "tf.layers.dense(1)",
        "tf.nn.rnn_cell.GRUCell(1)",
        "re.compile('adam')",
        "getattr(x, name)",
        "getattr(tf.train, name + 'Hook')",
        "optimizer.minimize(loss)",
        "def f(tf):\n  tf.train.AdamOptimizer(1)",
        "'tf.train.AdamOptimizer(1)'",
        "tf.keras.optimizers.schedules.ExponentialDecay(1)",
    ],
)
def test_what_is_no_use(uses, code):
    assert uses(a="import tensorflow as tf\nimport re\n" + code) == []


def test_an_optimizer_of_somebody_else_is_asked_about_only_beside_tensorflow(uses):
    assert uses(a="from skopt import BayesOptimizer\nBayesOptimizer(1)") == []


CUSTOM = """
import tensorflow.compat.v1 as tf
class Old(tf.train.Optimizer):
    def _apply_dense(self, grad, var): pass
class Both(tf.train.Optimizer):
    def _apply_dense(self, grad, var): pass
    def _resource_apply_dense(self, grad, var): pass
class Wrapper(tf.train.Optimizer):
    def apply_gradients(self, pairs, global_step=None, name=None): pass
class AdamWeightDecayOptimizer(tf.train.Optimizer):
    def apply_gradients(self, pairs, global_step=None, name=None): pass
class Keras(tf.keras.optimizers.Optimizer):
    def _resource_apply_dense(self, grad, var): pass
"""


def test_classes_over_files(uses):
    found = uses(
        package_in___init__="from .mine import *",
        package_in_mine=CUSTOM,
        other="from package import Old as O\nclass Child(O): pass\nChild(0.1)\n",
    )
    told = {name: (kind, status, instead) for kind, _, _, status, name, instead in found}
    assert told == {
        "class Old(tf.train.Optimizer)": ("subclass", "person", None),
        "class Both(tf.train.Optimizer)": ("subclass", "stays", None),
        "class Wrapper(tf.train.Optimizer)": ("subclass", "stays", None),
        "class AdamWeightDecayOptimizer(tf.train.Optimizer)": (
            "subclass",
            "change",
            "legacy_opt.AdamWeightDecayOptimizer",
        ),
        "class Keras(tf.keras.optimizers.Optimizer)": (
            "subclass",
            "person",
            "tf.keras.optimizers.legacy.Optimizer",
        ),
        "class Child(tf.train.Optimizer)": ("subclass", "person", None),
        "Child": ("constructor", "stays", None),
    }


def test_star_imports_and_private_modules_need_a_person(uses):
    found = uses(
        a="from tensorflow.contrib.opt import *\nLazyAdamOptimizer(1)\n",
        b="from tensorflow.python.training import training_ops\ntraining_ops.apply_adam()\n",
    )
    assert [(use[0], use[3]) for use in found] == [
        ("star import", "person"),
        ("constructor", "change"),
        ("import", "person"),
    ]


def test_python_2_is_told(tmp_path):
    (tmp_path / "a.py").write_text("import x\nprint 'AdamOptimizer'\n")
    ((use,), _) = audit([str(tmp_path)])
    assert (use.kind, use.line, use.status) == ("unreadable", 2, "person")
    assert "Python 2" in use.advice and "line 2" in use.advice


def test_a_notebook_is_read_by_cells(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["AdamOptimizer"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import tensorflow as tf"]},
        {"cell_type": "code", "source": "if x:\n  !ls\n\ntf.train.AdamOptimizer(1)"},
    ]
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    ((use,), _) = audit([str(path)])
    assert (use.path, use.line, use.column) == ("%s[3]" % path, 4, 1)


def test_the_command(tmp_path, capsys):
    screen = Screen(capsys)
    path = tmp_path / "a.py"
    path.write_text("import tensorflow as tf\ntf.train.AdamOptimizer(1)\n")
    code, output, errors = screen.run("audit", path)
    assert (code, errors) == (0, "")
    assert "%s:2:1" % path in output and "1 to change" in output
    facts = screen.json("audit", path)
    assert facts["counts"] == {"stays": 0, "change": 1, "person": 0}
    assert (facts["uses"][0]["line"], facts["uses"][0]["instead"]) == (2, V1 + "AdamOptimizer")
    path.write_text("import tensorflow as tf\ntf.train.MysteryOptimizer(1)\n")
    screen.json("audit", path, code=1)
    assert "nowhere" in screen.refused("audit", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no .py" in screen.refused("audit", tmp_path / "empty")


def test_tensorflow_is_not_needed(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('imported')")
    (tmp_path / "a.py").write_text("import tensorflow as tf\n")
    command = [sys.executable, "-m", "legacy_opt", "audit", str(tmp_path / "a.py")]
    path = "%s:%s" % (tmp_path, ROOT)
    output = subprocess.check_output(command, env={"PYTHONPATH": path}, universal_newlines=True)
    assert output.startswith("0 uses in 1 file")
