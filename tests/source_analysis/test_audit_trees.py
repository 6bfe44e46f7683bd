"""Tests `legacy-opt audit` for packages that define optimizers, and classes with unknown bases.

If a base class is known only at run time, the audit guesses whether the class is an optimizer.
"""

import json
import os
import warnings

import pytest

from legacy_opt.compat.old_programs.source_analysis.optimizer_uses import audit
from tests.support.processes.command_line import Screen

pytestmark = pytest.mark.once

YELLOW = "tensor2tensor.utils.yellowfin.YellowFinOptimizer"
MANUAL, GUESS = "manual", "A guess: "
TREE = {
    "tensor2tensor/__init__.py": "from .utils.yellowfin import YellowFinOptimizer as Fin\n",
    "tensor2tensor/utils/__init__.py": "from .yellowfin import *\n",
    "tensor2tensor/utils/yellowfin.py": """\
import tensorflow as tf
class YellowFinOptimizer(object):
    def apply_gradients(self, pairs): pass
def default(): return YellowFinOptimizer(1.0)
""",
}


@pytest.fixture
def uses(tmp_path):
    """Returns a function that audits files ({path: code}) and returns the uses in the last file."""

    def run(files):
        for name, code in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
        found, _ = audit([str(tmp_path)])
        return [use for use in found if use.path == str(path)]

    return run


@pytest.mark.parametrize(
    "name, code, kinds",
    [
        ("utils/a", "from tensor2tensor.utils import yellowfin as y\ny.YellowFinOptimizer(1)", "c"),
        ("utils/a", "from . import yellowfin\nyellowfin.YellowFinOptimizer(1)", "c"),
        ("utils/a", "from .yellowfin import YellowFinOptimizer as Y\nY(1)", "ic"),
        ("a", "from .utils.yellowfin import YellowFinOptimizer\nYellowFinOptimizer(1)", "ic"),
        ("a", "import tensor2tensor.utils.yellowfin as y\no = {1: y.YellowFinOptimizer}", "m"),
        ("a", "from tensor2tensor import Fin\nFin(1)", "ic"),
        ("a", "import tensor2tensor as t\nt.Fin(1)", "c"),
        ("a", "from tensor2tensor.utils import YellowFinOptimizer as Y\nY(1)", "ic"),
        ("a", "from tensor2tensor.utils.yellowfin import *\nYellowFinOptimizer(1)", "c"),
        ("a", "from .utils import yellowfin as y\nclass A(y.YellowFinOptimizer): pass\nA()", "sc"),
        ("a", "from .utils import yellowfin as y\ngetattr(y, 'YellowFinOptimizer')(1)", "c"),
    ],
)
def test_an_optimizer_of_the_table_in_its_own_package(name, code, kinds, uses):
    found = uses(dict(TREE, **{f"tensor2tensor/{name}.py": code}))
    assert sorted(use.kind[0] for use in found) == sorted(kinds)
    first = [use for use in found if use.name != "A"]
    verdicts = {(use.status, use.advice) for use in first}
    advice = "Use tf.train.MomentumOptimizer, the optimizer that YellowFin tunes."
    assert verdicts == {(MANUAL, advice)}
    assert {use.name for use in first if use.kind != "subclass"} <= {YELLOW}


def test_the_class_and_a_use_in_the_same_file(uses):
    found = uses(TREE)
    assert [(use.kind, use.line, use.column, use.status) for use in found] == [
        ("class", 2, 7, MANUAL),
        ("constructor", 4, 23, MANUAL),
    ]


@pytest.mark.parametrize(
    "name, home, status, instead",
    [
        ("YellowFinOptimizer", "third_party/yellow.py", "manual", None),
        ("MultistepAdamOptimizer", "a.py", "change", "legacy_opt.GradientAccumulationOptimizer"),
        ("LAMBOptimizer", "albert/lamb_optimizer.py", "change", "legacy_opt.LAMBOptimizer"),
        ("Yogi", "tensorflow_addons/optimizers/yogi.py", "change", "legacy_opt.YogiOptimizer"),
        ("AveragedOptimizerWrapper", "tensorflow_addons/optimizers/a.py", "manual", None),
    ],
)
def test_classes_with_a_name_of_the_table_in_other_packages(name, home, status, instead, uses):
    code = f"import tensorflow as tf\nclass {name}: pass\n{name}(1)"
    for part in "tensorflow_addons", "tensorflow_addons/optimizers":
        if home.startswith(part):
            uses({part + "/__init__.py": ""})
    found = uses({home: code})
    assert [(use.kind, use.status, use.instead) for use in found] == [
        ("class", status, instead),
        ("constructor", status, instead),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "class AdamOptimizer: pass\nAdamOptimizer(1)",
        "class Yogi: pass\nYogi(1)",
        "class A(Generic): pass",
        "from typing import Generic, T\nclass FirstOptimizer(Generic[T]): pass",
        "class SomeOptimizer(object): pass",
        "class OptimizerTest(make_cases()):\n  def test(self): pass",
        "class Model(layers_of(name)):\n  def call(self): pass",
        "type('Model', (make(),), {})",
        "type(optimizer)",
    ],
)
def test_code_without_optimizers_has_no_uses(code, uses):
    assert uses({"a.py": "import tensorflow as tf\n" + code}) == []


APPLIES = "\n    def _apply_dense(self, grad, var): pass\n"
AT_RUN_TIME = {
    "class A(tf.train.__dict__[name]):" + APPLIES: "class A(…)",
    "class A(registry.get('optimizer')): pass": "class A(…)",
    "class A(getattr(tf.train, name)):" + APPLIES: "class A(…)",
    "class AOptimizer(bases[name]): pass": "class AOptimizer(…)",
    "def f(base):\n  class A(base):\n    def apply_gradients(self, pairs): pass": "class A(…)",
    "def f(o):\n  class A(o.__class__):\n    def apply_gradients(self, pairs): pass": "class A(…)",
    "def f(optimizer):\n  class A(type(optimizer)): pass": "class A(…)",
    "def f(self):\n  class A(self.optimizer_class): pass": "class A(…)",
    "def f(optimizer):\n  return type('A', (optimizer.__class__,), {})": "class A(…)",
    "Base = find(name)\nclass A(Base):\n    def _create_slots(self, x): pass": "class A(…)",
}


@pytest.mark.parametrize("code", AT_RUN_TIME)
def test_a_base_that_is_known_at_run_time_only_is_a_guess(code, uses):
    found = uses({"a.py": "import tensorflow as tf\n" + code})
    (use,) = [each for each in found if each.kind != "getattr"]
    assert (use.kind, use.status, use.name) == ("subclass", MANUAL, AT_RUN_TIME[code])
    assert use.advice.startswith(GUESS)


def test_subclasses_of_a_guess_are_guesses_and_files_without_tensorflow_have_none(uses):
    code = "class A(registry.get('optimizer')): pass\nclass B(A): pass\nB(1)\n"
    found = uses({"a.py": "import tensorflow as tf\n" + code})
    assert [use.kind for use in found] == ["subclass", "subclass", "constructor"]
    assert all(use.advice.startswith(GUESS) for use in found[:2])
    assert uses({"b.py": "class AOptimizer(bases[name]): pass"}) == []


@pytest.mark.parametrize(
    "code",
    [
        "import six, tensorflow as tf\nclass A(six.with_metaclass(M, tf.train.Optimizer)): pass",
        "from stars import *\nclass A(train.Optimizer): pass",
        "from stars import train\nclass A(train.Optimizer): pass",
    ],
)
def test_bases_behind_six_and_star_imports(code, uses):
    found = uses({"stars.py": "from tensorflow import *\n", "a.py": code})
    # The argument of six.with_metaclass is a use of the kind "mention".
    (use,) = [each for each in found if each.kind != "mention"]
    assert (use.kind, use.name) == ("subclass", "class A(tf.train.Optimizer)")


@pytest.mark.parametrize("name", ["new\nline", "\x1b[31mred", "\u202eright", "a\udcff"])
def test_hostile_names_of_files_are_one_row(name, tmp_path, capsys):
    code = "import tensorflow as tf\ntf.train.GhostOptimizer(1)\n"
    try:
        (tmp_path / (name + ".py")).write_text(code)
    except (OSError, UnicodeEncodeError):  # the file system does not allow the name
        return
    code, output, errors = Screen(capsys).run("audit", tmp_path)
    assert (code, errors) == (1, "")
    lines = output.split("\n")
    assert len(lines) == 6 and all(line.isprintable() for line in lines)
    assert ".py:2:1" in lines[2]
    facts = Screen(capsys).json("audit", tmp_path, code=1)
    assert os.path.basename(facts["uses"][0]["path"]) == name + ".py"


def test_parsing_does_not_warn(tmp_path):
    (tmp_path / "a.py").write_text("import tensorflow as tf\ntf.train.AdamOptimizer('\\d')\n")
    cell = {
        "cell_type": "code",
        "source": "'\\d'\nimport tensorflow as tf\ntf.train.AdamOptimizer(1)",
    }
    (tmp_path / "b.ipynb").write_text(json.dumps({"cells": [cell]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, _ = audit([str(tmp_path)])
    assert [use.kind for use in found] == ["constructor", "constructor"]
