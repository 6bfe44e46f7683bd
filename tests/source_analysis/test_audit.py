"""Tests `legacy-opt audit`, which finds the uses of optimizers in Python files and notebooks.

Each use has a status: "stays" (works unchanged), "change" (the audit says how to change it) or
"manual" (needs manual work).
"""

import json
import re
import subprocess
import sys
import textwrap

import pytest
import tensorflow as tf

from legacy_opt.compat.old_programs.source_analysis import name_verdicts
from legacy_opt.compat.old_programs.source_analysis.optimizer_uses import audit
from tests.support.processes.command_line import ROOT, Screen

pytestmark = pytest.mark.once

V1 = "tf.compat.v1.train."
LEGACY = "tf.keras.optimizers.legacy."


@pytest.fixture
def uses(tmp_path):
    """Returns a function that writes and audits files, which are keyword arguments (name=code).

    `package_in_module=code` writes the file package/module.py. The function returns a tuple (kind,
    line, column, status, name, instead) for each use.
    """

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
            "import tensorflow as tf\n{'adam': tf.train.AdamOptimizer}[name](0.1)",
            ["constructor", "mention"],
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
        ("import tensorflow as tf\nt = tf.train if x else y\nt.AdamOptimizer(1)", ["constructor"]),
        ("import tensorflow as tf\nt = x or tf.train\nt.AdamOptimizer(1)", ["constructor"]),
        (
            "import tensorflow as tf, functools\n"
            "o = functools.partial(tf.train.AdamOptimizer, 0.1)\no()",
            ["mention", "constructor"],
        ),
        (
            "import tensorflow as tf\nfor o in [tf.train.AdamOptimizer]:\n  o(0.1)",
            ["mention", "constructor"],
        ),
        (
            "import tensorflow as tf\nasync def f():\n"
            "  async for o in [tf.train.AdamOptimizer]:\n    o(0.1)",
            ["mention", "constructor"],
        ),
        (
            "import importlib\nimportlib.import_module('tensorflow.train').AdamOptimizer(0.1)",
            ["constructor"],
        ),
    ],
)
def test_aliases_are_followed(uses, code, kinds):
    found = uses(a=code)
    assert sorted(use[0] for use in found) == sorted(kinds)
    assert {use[3:] for use in found} == {("change",) + ADAM}


def test_of_two_imports_of_an_optimizer_the_one_with_less_work_counts(uses):
    code = "import tensorflow as tf\ntry:\n  t = tf.train\nexcept x:\n  t = tf.compat.v1.train\n"
    ((kind, _, _, status, _, _),) = uses(a=code + "t.AdamOptimizer(1)")
    assert (kind, status) == ("constructor", "stays")


@pytest.mark.parametrize(
    "code, status, instead",
    [
        ("tf.compat.v1.train.AdamOptimizer(1)", "stays", None),
        ("tf.train.AdagradDecayOptimizer(1)", "change", "legacy_opt.AdagradDecayOptimizer"),
        ("tf.contrib.opt.LazyAdamOptimizer(1)", "change", "legacy_opt.LazyAdamOptimizer"),
        ("tf.contrib.layers.optimize_loss(1)", "change", "legacy_opt.optimize_loss"),
        ("tf.contrib.training.create_train_op(1)", "change", "legacy_opt.create_train_op"),
        ("tf.contrib.slim.learning.create_train_op", "change", "tf_slim.learning.create_train_op"),
        ("tf.contrib.opt.GGTOptimizer(1)", "manual", None),
        ("tf.contrib.strange.StrangeOptimizer(1)", "manual", None),
        ("tf.train.StrangeOptimizer(1)", "manual", None),
        ("tf.keras.optimizers.Adam(0.1)", "stays", None),
        ("tf.keras.optimizers.Adam(lr=0.1)", "change", None),
        ("tf.keras.optimizers.Adam(0.1, decay=0.1)", "change", None),
        ("tfa.optimizers.AdamW(1)", "change", "legacy_opt.AdamWOptimizer"),
        ("tfa.optimizers.lamb.LAMB(1)", "change", "legacy_opt.LAMBOptimizer"),
        ("tfa.optimizers.Strange(1)", "manual", None),
        (
            "optimization.AdamWeightDecayOptimizer(1)",
            "change",
            "legacy_opt.AdamWeightDecayOptimizer",
        ),
        ("legacy_opt.LAMBOptimizer(1)", "stays", None),
        ("getattr(tf.train, name + 'Optimizer')(1)", "manual", None),
        ("x.swapping_saver()", "stays", None),
        ("model.compile('adam')", "stays", None),
        ("tf.estimator.tpu.CrossShardOptimizer(1)", "manual", None),
        ("tf.estimator.ModeKeys.INFER", "manual", None),
        ("tf.estimator.ModeKeys.EVAL", "change", "legacy_opt.compat.estimator.ModeKeys.EVAL"),
        ("slim.optimize_loss(1, 2, optimizer='Nonsense')", "manual", None),
        (
            "tf.estimator.DNNClassifier(optimizer='Adagrad')",
            "change",
            "legacy_opt.compat.estimator.DNNClassifier",
        ),
        (
            "tf.estimator.LinearEstimator(h, f, d, 'Ftrl')",
            "change",
            "legacy_opt.compat.estimator.LinearEstimator",
        ),
        ("tf.compat.v1.estimator.DNNClassifier(optimizer='lion')", "manual", None),
    ],
)
def test_status_and_replacement(uses, code, status, instead):
    imports = "import tensorflow as tf, tensorflow_addons as tfa, legacy_opt\n"
    imports += "from bert import optimization\n"
    found = uses(a=imports + code)
    assert (status, instead) in {(use[3], use[5]) for use in found}


NAMES = {  # name: (status, what to write instead, a part of the advice)
    "tensorflow.keras.optimizers.Adam": ("stays", None, "A Keras optimizer."),
    "tensorflow.keras.optimizers.Optimizer": ("stays", None, "Keras' base class."),
    "tensorflow.keras.optimizers.legacy.Adam": ("stays", None, "in optimizers.legacy"),
    "tensorflow.keras.optimizers.Strange": ("manual", None, "Keras has no such optimizer."),
    "tensorflow.keras.optimizers.legacy.Lion": ("manual", None, "Keras has no such optimizer."),
    "tensorflow.contrib.keras.optimizers.Lion": ("manual", None, "Keras has no such optimizer."),
    "tensorflow.contrib.keras.optimizers.Optimizer": ("change", None, "before OptimizerV2"),
    "keras.optimizers.Lion": ("stays", None, "A Keras optimizer."),
    "keras.optimizers.TFOptimizer": ("change", "legacy_opt.compat.to_keras", "wraps"),
    "keras.src.optimizers.adam.Adam": ("change", "tf.keras.optimizers.Adam", "private"),
    "keras.optimizer_v2.adam.Adam": ("change", LEGACY + "Adam", "another class from 2.11 on"),
    "tensorflow.python.keras.optimizer_v2.adam.Adam": ("change", LEGACY + "Adam", "another class"),
    "tensorflow.python.keras.optimizer_v2.optimizer_v2.OptimizerV2": (
        "change",
        LEGACY + "Optimizer",
        "Up to TensorFlow 2.10, use tf.keras.optimizers.Optimizer",
    ),
    "tensorflow.python.keras.optimizer_v1.Optimizer": ("change", None, "before OptimizerV2"),
    "tensorflow.python.keras.optimizers.Optimizer": ("change", None, "before OptimizerV2"),
    "tensorflow.python.keras.optimizers.SGD": ("change", "tf.keras.optimizers.SGD", "another"),
    "tensorflow.python.keras.optimizers.TFOptimizer": ("change", "legacy_opt.compat.to_keras", ""),
    "tensorflow.estimator.tpu.CrossShardOptimizer": ("manual", None, "TensorFlow 1 never had this"),
    "mine.keras.optimizers.Adam": ("manual", None, "legacy-opt does not know this name"),
}


@pytest.mark.parametrize("name", NAMES)
def test_advice_on_names(name):
    verdict = name_verdicts.verdict(name)
    status, instead, advice = NAMES[name]
    assert (verdict.status, verdict.instead) == (status, instead) and advice in verdict.advice


@pytest.mark.every_lane
def test_every_optimizer_of_keras_is_known():
    homes = {"": tf.keras.optimizers, "legacy.": getattr(tf.keras.optimizers, "legacy", None)}
    names = [prefix + name for prefix, home in homes.items() for name in dir(home)]
    names = [name for name in names if re.match(r"(legacy\.)?[A-Z]", name)]
    statuses = {
        name_verdicts.verdict("tensorflow.keras.optimizers." + name).status for name in names
    }
    assert statuses == {"stays"}, names


@pytest.mark.parametrize(
    "code",
    [
        "tf.train.get_global_step()",
        "tf.train.Saver(1)",
        "tf.OptimizerOptions.L0",
        "re.compile('adam')",
        "getattr(x, name)",
        "getattr(tf.train, name + 'Hook')",
        "optimizer.minimize(loss)",
        "def f(tf):\n  tf.train.AdamOptimizer(1)",
        "'tf.train.AdamOptimizer(1)'",
        "class A('AdamOptimizer'): pass",
        "tf.keras.optimizers.schedules.ExponentialDecay(1)",
    ],
)
def test_code_without_optimizers_has_no_uses(uses, code):
    assert uses(a="import tensorflow as tf\nimport re\n" + code) == []


def test_an_unknown_optimizer_is_reported_only_in_a_file_that_mentions_tensorflow(uses):
    assert uses(a="from skopt import BayesOptimizer\nBayesOptimizer(1)") == []


CUSTOM = """
import tensorflow.compat.v1 as tf
from tensorflow.python.keras.optimizer_v2.optimizer_v2 import OptimizerV2
class Old(tf.train.Optimizer):
    def _apply_dense(self, grad, var): pass
class Both(tf.train.Optimizer):
    def _apply_dense(self, grad, var): pass
    def _resource_apply_dense(self, grad, var): pass
class Inherits(Both):
    def _apply_dense(self, grad, var): pass
class Wrapper(tf.train.Optimizer):
    def apply_gradients(self, pairs, global_step=None, name=None): pass
class AdamWeightDecayOptimizer(tf.train.Optimizer):
    def apply_gradients(self, pairs, global_step=None, name=None): pass
class Keras(tf.keras.optimizers.Optimizer):
    def _resource_apply_dense(self, grad, var): pass
class KerasAdam(tf.keras.optimizers.Adam):
    def _resource_apply_dense(self, grad, var): pass
class Lion(tf.keras.optimizers.Lion):
    def _resource_apply_dense(self, grad, var): pass
class Private(OptimizerV2):
    def _resource_apply_dense(self, grad, var): pass
class Older(tf.keras.optimizers.legacy.Optimizer):
    def get_updates(self, loss, params): pass
"""


def test_classes_over_files(uses):
    found = uses(
        package_in___init__="from .mine import *",
        package_in_mine=CUSTOM,
        other="from package import Old as O\nclass Child(O): pass\nChild(0.1)\n",
    )
    by_name = {name: (kind, status, instead) for kind, _, _, status, name, instead in found}
    assert by_name == {
        "class Old(tf.train.Optimizer)": ("subclass", "manual", None),
        "class Both(tf.train.Optimizer)": ("subclass", "stays", None),
        "class Inherits(tf.train.Optimizer)": ("subclass", "stays", None),
        "class Wrapper(tf.train.Optimizer)": ("subclass", "stays", None),
        "class AdamWeightDecayOptimizer(tf.train.Optimizer)": (
            "subclass",
            "change",
            "legacy_opt.AdamWeightDecayOptimizer",
        ),
        "class Keras(tf.keras.optimizers.Optimizer)": (
            "subclass",
            "manual",
            LEGACY + "Optimizer",
        ),
        "class KerasAdam(tf.keras.optimizers.Adam)": ("subclass", "manual", LEGACY + "Adam"),
        "class Lion(tf.keras.optimizers.Lion)": ("subclass", "manual", LEGACY + "Optimizer"),
        "class Private(tf.keras.optimizers.Optimizer)": (
            "subclass",
            "manual",
            LEGACY + "Optimizer",
        ),
        "tf.keras.optimizers.Optimizer": ("import", "change", LEGACY + "Optimizer"),
        "class Older(tf.keras.optimizers.Optimizer)": ("subclass", "manual", None),
        "class Child(tf.train.Optimizer)": ("subclass", "manual", None),
        "Child": ("constructor", "stays", None),
    }


def test_advice_on_classes_that_run_in_a_graph_only(tmp_path):
    (tmp_path / "mine.py").write_text(CUSTOM)
    advice = {use.name.partition("(")[0]: use.advice for use in audit([str(tmp_path)])[0]}
    assert "`legacy-opt run`" in advice["class Old"]
    assert "disable_resource_variables()" in advice["class Old"]
    assert "`legacy-opt run` runs it unchanged" in advice["class KerasAdam"]
    assert "`legacy-opt run`" not in advice["class Private"]
    assert "optimizer_v1.Optimizer" in advice["class Older"]
    assert "`legacy-opt docs any_optimizer`" in advice["class Older"]


def test_star_imports_need_manual_work_and_private_modules_a_change(uses):
    found = uses(
        a="from tensorflow.contrib.opt import *\nLazyAdamOptimizer(1)\n",
        b="from tensorflow.python.training import training_ops\ntraining_ops.apply_adam()\n",
    )
    assert [(use[0], use[3]) for use in found] == [
        ("star import", "manual"),
        ("constructor", "change"),
        ("removed", "change"),
        ("removed", "change"),
    ]


@pytest.mark.parametrize(
    "code, line, advice",
    [
        (b"import x\nprint 'AdamOptimizer'\n", 2, "Python 2.*mentions optimizers in line 2"),
        (b"try: x\nexcept E, e: pass\n", 2, "Python 2"),
        (b"x = 1\nx = = 2\n", 2, "invalid syntax"),
        (b"# caf\xe9\nimport x\n", 1, "encoding"),
        (b"x = a" + b".b()" * 3000, 1, "too deeply|too much|recursion|too complex"),
    ],
    ids=["print", "except", "syntax", "encoding", "depth"],
)
def test_unreadable_files_need_manual_work_and_the_rest_is_read(tmp_path, code, line, advice):
    (tmp_path / "a.py").write_bytes(code)
    (tmp_path / "b.py").write_text("import tensorflow as tf\ntf.train.AdamOptimizer(1)\n")
    ((use, other), count) = audit([str(tmp_path)])
    assert (use.kind, use.line, use.status) == ("unreadable", line, "manual")
    assert re.search(advice, use.advice)
    assert (other.line, other.status, count) == (2, "change", 2)


def test_notebooks_are_read_cell_by_cell(tmp_path):
    cells = [
        ("markdown", ["AdamOptimizer"]),
        ("code", ["%matplotlib inline\n", "import tensorflow as tf\n", "x = !ls\n", "tf.train?"]),
        ("code", "if x:\n  !ls\n\ntf.train.AdamOptimizer(1)"),
        ("code", "%%bash\nls | wc"),
        ("code", "%%time\n(x\n % tf.train.FtrlOptimizer(1))"),
        ("code", "x = = 1"),
    ]
    path = tmp_path / "x.ipynb"
    facts = [{"cell_type": kind, "source": source} for kind, source in cells]
    path.write_text(json.dumps({"cells": facts}))
    uses, _ = audit([str(path)])
    assert [(use.path[len(str(path)) :], use.line, use.kind) for use in uses] == [
        ("[3]", 4, "constructor"),
        ("[5]", 3, "constructor"),
        ("[6]", 1, "unreadable"),
    ]
    for no_notebook in {"worksheets": []}, {"cells": None}, {"cells": "x"}, []:
        path.write_text(json.dumps(no_notebook))
        ((use,), _) = audit([str(path)])
        assert (use.kind, use.status) == ("unreadable", "manual") and "nbformat 4" in use.advice


ADAMS_IN_CELLS = {  # {cell: line:column of each use of tf.train.AdamOptimizer}
    "x = %time tf.train.AdamOptimizer(1)": ["1:11"],
    "x, y = %timeit -n 3 -o -r2 tf.train.AdamOptimizer(1)": ["1:28"],
    "%time x = tf.train.AdamOptimizer(1)": ["1:11"],
    "if x:\n  %timeit tf.train.AdamOptimizer(1)": ["2:11"],
    "%prun -s cumulative tf.train.AdamOptimizer(1)": ["1:21"],
    "%%timeit x = tf.train.AdamOptimizer(1)\nx.y": ["1:14"],
    "%%time\n  x = tf.train.AdamOptimizer(1)": ["2:7"],
    "%time\ntf.train.AdamOptimizer(1)": ["2:1"],
    "tf.train.AdamOptimizer(1)??": ["1:1"],
    "tf.train.AdamOptimizer?": ["1:1"],
    "?tf.train.AdamOptimizer": ["1:2"],
    "tf.train.Adam*?\ntf.train.AdamOptimizer(1)": ["2:1"],
    "%time for x in y: f(x)\ntf.train.AdamOptimizer(1)": ["2:1"],
    "\n  x = 1\n  tf.train.AdamOptimizer(1)\ny = 2": ["3:3"],
    "  %time tf.train.AdamOptimizer(1)": ["1:9"],
    "  x = = 1": ["1:7"],
}


@pytest.mark.parametrize("ending", [".ipynb", ".IPYNB"])
@pytest.mark.parametrize("cell", ADAMS_IN_CELLS)
def test_the_code_in_magics_is_read(tmp_path, cell, ending):
    path = tmp_path / ("x" + ending)
    cells = [cell, "tf.train.AdamOptimizer(2)"]
    facts = [{"cell_type": "code", "source": each} for each in ["import tensorflow as tf", *cells]]
    path.write_text(json.dumps({"cells": facts}))
    uses, _ = audit([str(tmp_path)])
    assert [f"{use.line}:{use.column}" for use in uses] == [*ADAMS_IN_CELLS[cell], "1:1"]
    assert [use.path[-3:] for use in uses] == ["[2]"] * len(ADAMS_IN_CELLS[cell]) + ["[3]"]
    assert {use.kind for use in uses} - {"constructor", "mention"} == (
        {"unreadable"} if "= =" in cell else set()
    )


def test_a_malformed_cell_hides_no_other_cell(tmp_path):
    code = {"cell_type": "code", "source": "import tensorflow as tf\ntf.train.AdamOptimizer(1)"}
    empty = [{"cell_type": "code"}, {"cell_type": "code", "source": None}, {"cell_type": "raw"}]
    malformed = [
        {"source": "x"},
        {"cell_type": "code", "source": 3},
        {"cell_type": "code", "source": [3]},
        {"cell_type": "code", "source": {"x": 1}},
        None,
        "x",
    ]
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps({"cells": [*empty, *malformed, code]}))
    uses, _ = audit([str(path)])
    assert [(use.path[len(str(path)) :], use.kind) for use in uses] == [
        *((f"[{number}]", "unreadable") for number in range(4, 10)),
        ("[10]", "constructor"),
    ]


def test_which_files_are_read(tmp_path):
    code = "import tensorflow as tf\ntf.train.AdamOptimizer(1)\n"
    read = ["a.py", "site-packages/b.py"]
    for name in read + [".hidden/c.py", "env/lib/d.py", "conda/e.py", "f.txt"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "conda" / "conda-meta").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "again.py").symlink_to(tmp_path / "a.py")
    uses, count = audit([str(tmp_path), str(tmp_path / "circle")])
    assert count == len(uses) == len(read)
    asked_for = [str(tmp_path / name) for name in ("env", "f.txt", ".hidden", "env/lib/d.py")]
    uses, count = audit(asked_for)
    assert [use.path[len(str(tmp_path)) + 1 :] for use in uses] == [
        "env/lib/d.py",
        "f.txt",
        ".hidden/c.py",
    ]


def test_the_command(tmp_path, capsys):
    screen = Screen(capsys)
    path = tmp_path / "a.py"
    path.write_text("import tensorflow as tf\ntf.train.AdamOptimizer(1)\n")
    code, output, errors = screen.run("audit", path)
    assert (code, errors) == (0, "")
    assert f"{path}:2:1" in output and "1 to change" in output
    facts = screen.json("audit", path)
    assert facts == {
        "paths": [str(path)],
        "files": 1,
        "counts": {"stays": 0, "change": 1, "manual": 0},
        "uses": [
            {
                "path": str(path),
                "line": 2,
                "column": 1,
                "kind": "constructor",
                "status": "change",
                "name": "tf.train.AdamOptimizer",
                "instead": V1 + "AdamOptimizer",
                "advice": "",
            }
        ],
    }
    path.write_text("import tensorflow as tf\ntf.train.MysteryOptimizer(1)\n")
    screen.json("audit", path, code=1)
    assert "nowhere" in screen.refused("audit", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no .py" in screen.refused("audit", tmp_path / "empty")


def test_tensorflow_is_not_needed(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('imported')")
    (tmp_path / "a.py").write_text("import tensorflow as tf\n")
    command = [sys.executable, "-m", "legacy_opt", "audit", str(tmp_path / "a.py")]
    path = f"{tmp_path}:{ROOT}"
    output = subprocess.check_output(command, env={"PYTHONPATH": path}, universal_newlines=True)
    assert output.startswith("0 uses in 1 file")
