"""Tests the table of old names, and that `compat.patch_tensorflow` adds old names to TensorFlow."""

import concurrent.futures
import contextlib
import importlib
import inspect
import pickle
import re
import sys

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat, versions
from legacy_opt.compat import estimator
from legacy_opt.compat.old_programs import old_names
from legacy_opt.compat.old_programs.old_names import moved_names
from legacy_opt.optimizers import decay_of_contrib
from tests.support import estimators
from tests.support.paths import ROOT
from tests.support.processes import programs

v1 = tf.compat.v1
DEEPREC = [
    "AdagradDecayOptimizer",
    "AdagradDecayOptimizerV2",
    "AdamAsyncOptimizer",
    "AdamWOptimizer",
]
DECAYING = [
    "AdamWOptimizer",
    "DecoupledWeightDecayExtension",
    "MomentumWOptimizer",
    "extend_with_decoupled_weight_decay",
]


def tensorflows_names():
    """Returns all names that a patch could change in TensorFlow's modules and in sys.modules."""
    modules = [tf, tf.train, v1, v1.train, importlib.import_module("tensorflow.python").training]
    modules += [versions.plain_module(module) for module in modules]
    names = [(sorted(vars(module)), sorted(dir(module))) for module in modules]
    exported = [list(getattr(module, "__all__", ())) for module in modules]
    # A patch may add `train` modules, and modules without a file. Other modules are not listed,
    # because TensorFlow may load them during a test.
    modules = {n: module for n, module in sys.modules.items() if n.startswith("tensorflow.")}
    made = [n for n, module in modules.items() if n.endswith(".train") or is_no_file(module)]
    return names, exported, sorted(made)


def is_no_file(module):
    return not vars(module).get("__file__")


@pytest.fixture(scope="module")
def private_modules_are_loaded():
    """Imports the private modules that a patch would import: they stay attributes of packages."""
    homes = {name.rpartition(".")[0] for name in old_names.MOVED} | set(moved_names.MODULES)
    for home in homes:
        if home.startswith("tf.python."):
            with contextlib.suppress(ImportError):
                importlib.import_module("tensorflow" + home[2:])


@pytest.fixture(autouse=True)
def left_as_it_was(private_modules_are_loaded):
    """Checks that each test leaves TensorFlow unchanged."""
    if versions.has_contrib():
        assert tf.contrib.opt  # loads all of tf.contrib
    before = tensorflows_names()
    yield
    assert tensorflows_names() == before


def test_importing_legacy_opt_patches_nothing():
    for module in tf.train, v1.train:
        assert not [name for name in DEEPREC if hasattr(module, name)]
    assert versions.has_contrib() or "tensorflow.contrib" not in sys.modules


def test_deeprecs_names_are_ours_while_the_patch_is_active():
    with compat.patch_tensorflow() as patch:
        for module in tf.train, v1.train:
            for name in DEEPREC:
                assert getattr(module, name) is object_called("legacy_opt." + name)
                assert patch.names["tf.train." + name] == "legacy_opt." + name
        from tensorflow.python.training import adam_async  # noqa: TID251
        from tensorflow.python.training.adagrad_decay import (  # noqa: TID251
            AdagradDecayOptimizer,
        )

        assert adam_async.AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer
        assert AdagradDecayOptimizer is legacy_opt.AdagradDecayOptimizer
        for name in "tensorflow.train", "tensorflow.compat.v1.train":
            train = importlib.import_module(name)
            assert train.AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer
        assert isinstance(tf.train.AdamAsyncOptimizer(0.1), v1.train.Optimizer)
    for module in tf.train, v1.train:
        for name in DEEPREC:
            with pytest.raises(AttributeError):
                getattr(module, name)


def test_added_names_answer_and_are_not_listed():
    """Some programs make a class of each optimizer in `dir(tf.train)`."""
    modules = [tf, v1, tf.train, v1.train, importlib.import_module("tensorflow.python").training]

    def listed(module):
        names = {*dir(module), *vars(module), *vars(versions.plain_module(module))}
        return names - {"__getattr__"}

    before = [listed(module) for module in modules]
    with compat.patch_tensorflow() as patch:
        assert [listed(module) for module in modules] == before
        members = dict(inspect.getmembers(v1.train, inspect.isclass))
        assert "AdamOptimizer" in members and not set(members) & set(DEEPREC)
        homes = {"tf": tf, "tf.train": tf.train}
        for module, _, name in (old.rpartition(".") for old in patch.names):
            assert module not in homes or hasattr(homes[module], name)
        from tensorflow.python.training import adam_async  # noqa: TID251

        cls = pickle.loads(pickle.dumps(v1.train.AdamAsyncOptimizer))
        assert cls is adam_async.AdamAsyncOptimizer


def test_tensorflows_own_names_stay():
    own = {"AdamOptimizer": v1.train.AdamOptimizer, "Optimizer": v1.train.Optimizer}
    with compat.patch_tensorflow() as patch:
        assert {name: getattr(v1.train, name) for name in own} == own
        assert hasattr(tf.train, "AdamOptimizer") == versions.speaks_v1()
        if versions.has_contrib():
            deeprecs = ["tf.train." + name for name in DEEPREC]
            assert sorted(patch.names) == ["tf.histogram_summary", *deeprecs]
            module = tf.contrib.opt.AdamWOptimizer.__module__
            assert module.startswith("tensorflow.contrib.opt.")


def names_in_contrib():
    """Returns {old name: new name} for the names of tf.contrib that have a replacement."""
    return {
        name: fate.now
        for name, fate in old_names.FATES.items()
        if name.startswith("tf.contrib.")
        and fate.now
        and "(" not in fate.now
        and name not in old_names.MOVED  # see test_moved_names.py
    }


def object_called(name):
    """Returns the object that a patch must put for a new name."""
    found = {"legacy_opt": legacy_opt, "tf": tf}[name.partition(".")[0]]
    for part in name.split(".")[1:]:
        # The module `decay_of_contrib` has the objects that decay like the originals.
        home = decay_of_contrib if part in DECAYING else found
        found = getattr(home, part)
    return found


if not versions.has_contrib():

    def test_contribs_names_are_ours_by_attributes_and_by_import():
        with compat.patch_tensorflow() as patch:
            ours = set(patch.names) - old_names.MOVED
            assert {n: patch.names[n] for n in ours if "contrib" in n} == names_in_contrib()
            for name, now in names_in_contrib().items():
                module, _, last = name.rpartition(".")
                for root in "tensorflow", "tensorflow.compat.v1":
                    imported = importlib.import_module(root + module[2:])
                    assert getattr(imported, last) is object_called(now), name
                for root in tf, v1:
                    found = root
                    for part in name.split(".")[1:]:
                        found = getattr(found, part)
                    assert found is object_called(now), name

    def test_private_modules_of_contrib_have_them_too():
        private = [name for name in old_names.PUBLIC_NAMES if name.startswith("tf.contrib.")]
        with compat.patch_tensorflow():
            for name in private:
                fate = old_names.find(name).fate
                if fate.now:
                    module, _, last = ("tensorflow" + name[2:]).rpartition(".")
                    assert getattr(importlib.import_module(module), last) is object_called(fate.now)

    def test_all_ways_to_import_a_module():
        with compat.patch_tensorflow():
            import tensorflow.contrib.opt as opt
            from tensorflow import contrib
            from tensorflow.contrib import layers, training
            from tensorflow.contrib.opt.python.training import lazy_adam_optimizer

            assert opt is contrib.opt is tf.contrib.opt is v1.contrib.opt
            assert importlib.import_module("tensorflow.compat.v1").contrib is contrib
            assert tf.compat.v1.contrib is contrib
            assert layers.optimize_loss is legacy_opt.optimize_loss
            assert training.create_train_op is legacy_opt.create_train_op
            assert lazy_adam_optimizer.LazyAdamOptimizer is legacy_opt.LazyAdamOptimizer
            star = {}
            exec("from tensorflow.contrib.opt import *", star)
            assert star["NadamOptimizer"] is legacy_opt.NadamOptimizer

    def test_the_error_for_a_name_without_replacement_gives_advice():
        with compat.patch_tensorflow():
            with pytest.raises(AttributeError, match="'tensorflow.contrib' .* 'slim' .*tf-slim"):
                tf.contrib.slim  # noqa: B018
            with pytest.raises(AttributeError, match="'GGTOptimizer' .*ShampooOptimizer"):
                tf.contrib.opt.GGTOptimizer  # noqa: B018
            with pytest.raises(ImportError):
                from tensorflow.contrib import slim  # noqa: F401
            with pytest.raises(ImportError, match="No module named 'tensorflow.contrib.slim'"):
                importlib.import_module("tensorflow.contrib.slim")
            assert not hasattr(tf.contrib, "tensor_forest")

    def test_legacy_opt_itself_does_not_mistake_the_patch_for_contrib():
        with compat.patch_tensorflow():
            assert hasattr(tf, "contrib") and not versions.has_contrib()


def test_patches_may_overlap():
    first = compat.patch_tensorflow()
    with compat.patch_tensorflow() as second:
        assert first.names == second.names
        first.undo()
        assert tf.train.AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer
        with compat.patch_tensorflow():
            pass
        first.undo()  # a second `undo` of a patch does not undo another patch
        assert tf.train.AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer
    assert not hasattr(tf.train, "AdamAsyncOptimizer")


def test_an_exception_in_the_block_removes_the_names():
    with pytest.raises(KeyError), compat.patch_tensorflow():
        {}[tf.train.AdamAsyncOptimizer]
    assert not hasattr(tf.train, "AdamAsyncOptimizer")


def test_a_patch_that_fails_halfway_leaves_nothing(monkeypatch):
    # tf.__version__ is a string, so the patch fails when it adds LARS to it. Before that, the patch
    # adds other names.
    monkeypatch.setitem(
        old_names.FATES, "tf.__version__.LARS", old_names.Fate("legacy_opt.LARSOptimizer", "")
    )
    with pytest.raises(TypeError):
        compat.patch_tensorflow()
    assert not hasattr(tf.train, "AdamAsyncOptimizer")


class Own(v1.train.GradientDescentOptimizer):
    """A user-defined optimizer class. Tests add it to TensorFlow under a name of DeepRec."""


def test_existing_names_are_never_replaced():
    train = vars(versions.plain_module(tf.train))
    train["AdamAsyncOptimizer"] = Own  # DeepRec's TensorFlow has this name
    try:
        with compat.patch_tensorflow():
            assert tf.train.AdamAsyncOptimizer is Own
            assert v1.train.AdamAsyncOptimizer is legacy_opt.AdamAsyncOptimizer
        assert tf.train.AdamAsyncOptimizer is Own
    finally:
        del train["AdamAsyncOptimizer"]


def test_threads_share_the_names():
    def patch_repeatedly(number):
        for _ in range(10):
            with compat.patch_tensorflow():
                assert tf.train.AdamAsyncOptimizer is v1.train.AdamAsyncOptimizer
        return number

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert list(threads.map(patch_repeatedly, range(4))) == list(range(4))


def test_undo_keeps_a_name_that_other_code_replaced():
    with compat.patch_tensorflow():
        vars(versions.plain_module(tf.train))["AdamAsyncOptimizer"] = Own
    assert tf.train.AdamAsyncOptimizer is Own
    del vars(versions.plain_module(tf.train))["AdamAsyncOptimizer"]


IMPORTS_A_SUBMODULE = """
import tensorflow as tf
from legacy_opt import compat
compat.patch_tensorflow()
import tensorflow.compat.v1.logging  # tf_keras does so
assert tensorflow.compat.v1.logging.info
"""


def test_submodules_can_be_imported_for_the_first_time_after_the_patch():
    done = programs.run_in_new_python("-c", IMPORTS_A_SUBMODULE, seconds=120)
    assert done.returncode == 0, done.stderr


# Modules that TensorFlow 2.16 removed, or that are missing if Keras 3 is used.


def test_loss_scales_and_scipy_are_contribs_where_it_exists():
    with compat.patch_tensorflow() as patch:
        from tensorflow.contrib.mixed_precision import (
            ExponentialUpdateLossScaleManager,
            FixedLossScaleManager,
            LossScaleManager,
            LossScaleOptimizer,
        )
        from tensorflow.contrib.opt.python.training.external_optimizer import (
            ExternalOptimizerInterface,
            ScipyOptimizerInterface,
        )

        classes = [ExponentialUpdateLossScaleManager, FixedLossScaleManager, LossScaleManager]
        classes += [LossScaleOptimizer, ExternalOptimizerInterface, ScipyOptimizerInterface]
        assert tf.contrib.opt.ScipyOptimizerInterface is ScipyOptimizerInterface
        for cls in classes:
            is_ours = cls is getattr(legacy_opt, cls.__name__)
            assert is_ours is not versions.has_contrib()
            home = "opt" if "Interface" in cls.__name__ else "mixed_precision"
            assert (f"tf.contrib.{home}.{cls.__name__}" in patch.names) is is_ours


@estimators.needed
@pytest.mark.filterwarnings("ignore:.* is deprecated and will be removed:UserWarning")
def test_removed_modules_are_back_while_the_patch_is_active():
    has_own = hasattr(tf, "estimator")
    before = tf.estimator if has_own else None
    layers, cells = (None, None) if has_own else (v1.layers, v1.nn.rnn_cell)
    with compat.patch_tensorflow() as patch:
        assert ("tf.estimator" in patch.names) == (not has_own)
        if has_own:
            assert tf.estimator is before
        else:
            assert tf.estimator.DNNClassifier.__name__ == "DNNClassifierV2"
            from tensorflow.compat.v1.estimator import DNNClassifier
            from tensorflow.estimator import SessionRunHook
            from tensorflow.estimator.export import ServingInputReceiver

            assert v1.estimator.DNNClassifier is DNNClassifier is estimator.DNNClassifier
            assert issubclass(v1.train.StopAtStepHook, SessionRunHook)
            assert tf.estimator.export.ServingInputReceiver is ServingInputReceiver
            with tf.Graph().as_default():
                assert v1.layers.dense(tf.ones([2, 3]), 4).shape == [2, 4]
                assert v1.nn.rnn_cell.BasicRNNCell(3).state_size == 3
    if not has_own:
        assert v1.layers is layers and v1.nn.rnn_cell is cells
        assert not hasattr(tf, "estimator")


# The table.


def test_every_replacement_exists():
    for name, fate in old_names.FATES.items():
        for now in re.findall(r"[\w.]+", fate.now or "") if name not in old_names.MOVED else ():
            if now != "tf.compat.v1.train.experimental.MixedPrecisionLossScaleOptimizer":
                assert object_called(now) is not None, name
        assert fate.now or fate.advice, name


def test_the_table_has_exactly_the_public_names_of_contrib():
    if not versions.has_contrib():
        return
    for module in "opt", "training", "estimator", "layers":
        listed = {name for name in old_names.FATES if name.startswith(f"tf.contrib.{module}.")}
        private = {name for name in listed if ".python." in name or ".HParams." in name}
        hooks = {name for name in listed if name.lower().endswith("hook")}  # gone before 1.15
        for name in listed - private - hooks:
            # A row of tf.contrib.layers also has names that only tf.contrib.slim has.
            homes = getattr(tf.contrib, module), tf.contrib.slim
            assert any(hasattr(home, name.rpartition(".")[2]) for home in homes), name
    public = {"tf.contrib.opt." + n for n in dir(tf.contrib.opt) if not n.startswith("_")}
    assert public - {"tf.contrib.opt.python"} <= set(old_names.FATES)
    for private, public in old_names.PUBLIC_NAMES.items():
        if private.startswith("tf.contrib."):
            module, _, name = ("tensorflow" + private[2:]).rpartition(".")
            original = getattr(importlib.import_module(module), name)
            home = getattr(tf.contrib, public.split(".")[2])
            assert getattr(home, name, original) is original


@pytest.mark.parametrize(
    "name, found",
    [
        ("tensorflow.contrib.opt.AdamWOptimizer", "tf.contrib.opt.AdamWOptimizer"),
        ("tf.compat.v1.train.AdamOptimizer", "tf.train.AdamOptimizer"),
        ("tensorflow.compat.v1.train.AdamOptimizer", "tf.train.AdamOptimizer"),
        (
            "tensorflow.contrib.opt.python.training.shampoo.ShampooOptimizer",
            "tf.contrib.opt.ShampooOptimizer",
        ),
        ("tensorflow_core.contrib.opt.NadamOptimizer", "tf.contrib.opt.NadamOptimizer"),
        ("tensorflow_addons.optimizers.AdamW", "tfa.optimizers.AdamW"),
        ("tf.contrib.slim.learning.train", "tf.contrib.slim.learning.train"),
        ("tf.contrib.seq2seq.BeamSearchDecoder", "tf.contrib.seq2seq"),
        ("tf.contrib.no_such_thing", "tf.contrib"),
        ("tf.contribution", None),
        ("tf.zeros", None),
    ],
)
def test_find_accepts_all_spellings_of_a_name(name, found):
    assert (old_names.find(name) and old_names.find(name).name) == found


def rows_of_the_page():
    """Yields the old names and the new names of each row of docs/from_to.md."""
    page = (ROOT / "docs" / "from_to.md").read_text(encoding="utf-8")
    for line in page.splitlines()[1:]:
        if line.startswith("| ") and not line.startswith("| from"):
            cells = [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split(" |")[:2]]
            olds = [name for name in cells[0] if re.match(r"[A-Za-z_][\w.]*$", name)]
            # A row may begin with a module, followed by names of its functions.
            if olds and (f"`{olds[0]}`:") in line:
                olds = [f"{olds[0]}.{name}" for name in olds[1:]]
            yield [old for old in olds if old != "optimize.optimize"], cells[1]


def test_the_page_agrees_with_the_table():
    on_the_page = set()
    for olds, news in rows_of_the_page():
        for number, old in enumerate(olds):
            found = [
                name
                for name in old_names.FATES
                if name == old_names.public_name(old) or name.endswith("." + old)
            ]
            assert found, f"{old!r} is not in the table of old names"
            on_the_page |= set(found)
            for name in found:
                now = old_names.FATES[name].now
                several = len(news) == len(olds)
                new = (news[number] if several else news[0]) if news else None
                assert now == new, name
    # The page does not list modules and helpers for DeepRec's variables. All optimizers, and all
    # names with a replacement, must be on the page.
    rest = set(old_names.FATES) - on_the_page - old_names.MOVED
    missing_on_the_page = {
        name
        for name in rest
        if old_names.FATES[name].now or name.rpartition(".")[2].endswith("Optimizer")
    }
    assert missing_on_the_page == set()
