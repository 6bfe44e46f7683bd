"""Tests that modules imported inside `patch_tensorflow` still work after the patch has ended."""

import contextlib
import importlib
import sys
import textwrap

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat, versions

v1 = tf.compat.v1
# A dict from import statements to expressions that use the imported module. TensorFlow 1.15 has
# tf.contrib. No version of TensorFlow has adam_async, a module of DeepRec.
IMPORTS = {
    "from tensorflow.python.training import adam_async as held": "held.AdamAsyncOptimizer",
    "import tensorflow.python.training.adam_async as held": "held.AdamAsyncOptimizer",
    "from tensorflow.contrib import opt as held": "held.LazyAdamOptimizer",
    "import tensorflow.contrib.opt as held": "held.LazyAdamOptimizer",
    "from tensorflow import contrib as held": "held.layers.optimize_loss",
    "from tensorflow.compat.v1 import contrib as held": "held.opt.LazyAdamOptimizer",
    "from tensorflow.contrib.opt.python.training import nadam_optimizer as held": (
        "held.NadamOptimizer"
    ),
    "import sys, tensorflow.contrib.opt\nheld = sys.modules['tensorflow.contrib.opt']": (
        "held.LazyAdamOptimizer"
    ),
    "import importlib\nheld = importlib.import_module('tensorflow.contrib.opt')": (
        "held.LazyAdamOptimizer"
    ),
}


@pytest.fixture
def module_of(tmp_path, monkeypatch):
    """Returns a function that writes a module with the given code and imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def make(code):
        names.append(f"old_model_{id(tmp_path)}_{len(names)}")
        (tmp_path / (names[-1] + ".py")).write_text(textwrap.dedent(code))
        importlib.invalidate_caches()
        return importlib.import_module(names[-1])

    yield make
    for name in names:
        sys.modules.pop(name, None)


def fails_by_itself(statement):
    """Returns whether the import fails on TensorFlow 1.15 even inside a patch."""
    first = statement.split(" as ")[0]
    no = "from tensorflow.compat.v1 import contrib", "import tensorflow.python.training.adam_async"
    return versions.has_contrib() and first in no


@pytest.mark.parametrize("statement", [each for each in IMPORTS if not fails_by_itself(each)])
def test_a_module_keeps_what_it_imported(statement, module_of):
    use = IMPORTS[statement]
    code = f"{statement}\ndef use():\n    return {use}\n"
    with compat.patch_tensorflow():
        module = module_of(code)
        expected = module.use()
    assert module.use() is expected
    name = use.rpartition(".")[2]
    assert versions.has_contrib() or expected is getattr(legacy_opt, name)
    assert not hasattr(tf.train, "AdamAsyncOptimizer")
    assert hasattr(tf, "contrib") == versions.has_contrib()
    assert "tensorflow.python.training.adam_async" not in sys.modules
    with compat.patch_tensorflow() as again:  # a second patch adds the same names
        assert module.use() is expected is module_of(code).use()
        assert "tf.train.AdamAsyncOptimizer" in again.names
    assert module.use() is expected


def test_each_patch_has_the_same_names_and_modules():
    home, held, names = "tensorflow.python.training.adam_async", [], []
    for _ in range(3):
        with compat.patch_tensorflow() as patch, compat.patch_tensorflow() as nested:
            names += [patch.names, nested.names]
            held.append(importlib.import_module(home))
        with pytest.raises(ImportError):
            importlib.import_module(home)
    assert held[0] is held[1] is held[2]
    assert all(each == names[0] for each in names) and "tf.train.AdamAsyncOptimizer" in names[0]
    assert held[0].AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 0, 2, 1)])
def test_patches_may_be_undone_in_any_order(order):
    with contextlib.ExitStack() as undone:
        patches = [compat.patch_tensorflow() for _ in range(3)]
        for patch in patches:
            undone.callback(patch.undo)
        held = importlib.import_module("tensorflow.python.training.adam_async")
        for number in order:
            assert tf.train.AdamAsyncOptimizer is held.AdamAsyncOptimizer
            patches[number].undo()
    assert not hasattr(tf.train, "AdamAsyncOptimizer")
    assert held.AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer


def test_after_an_error_in_the_block_imported_modules_keep_their_names(module_of):
    code = "from tensorflow.python.training import adam_async\n"
    with pytest.raises(ZeroDivisionError), compat.patch_tensorflow():
        module = module_of(code)
        module_of(code + "1 / 0")
    assert module.adam_async.AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer
    assert not hasattr(tf.train, "AdamAsyncOptimizer")


def test_a_module_can_be_reloaded_only_while_a_patch_is_active(module_of):
    code = "from tensorflow.python.training import adam_async as held\n"
    with compat.patch_tensorflow():
        module = module_of(code)
        assert importlib.reload(module).held.AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer
    with pytest.raises(ImportError):
        importlib.reload(module)
    with compat.patch_tensorflow():
        assert importlib.reload(module).held.AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer


def test_attributes_that_users_add_to_a_created_module_stay(monkeypatch):
    home = "tensorflow.python.training.adam_async"
    with compat.patch_tensorflow():
        held = importlib.import_module(home)
        monkeypatch.setattr(held, "Own", held.AdamAsyncOptimizer, raising=False)
    with compat.patch_tensorflow():
        assert importlib.import_module(home).Own is legacy_opt.AdamAsyncOptimizer
