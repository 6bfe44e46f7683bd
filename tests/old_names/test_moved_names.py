"""Tests the names of tf.contrib, and private names, that live elsewhere now."""

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import textwrap
import types

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import compat, versions
from legacy_opt.compat.old_programs import old_names
from legacy_opt.compat.old_programs.old_names import moved_names, parameters
from tests.support import estimators
from tests.support.processes import programs

v1 = tf.compat.v1
# Names that on TensorFlow 1.15 are not the objects to which they are forwarded.
OTHER_OBJECTS = {
    "tf.contrib.feature_column": "sequence_categorical_column_with_hash_bucket "
    "sequence_categorical_column_with_identity sequence_categorical_column_with_vocabulary_file "
    "sequence_categorical_column_with_vocabulary_list sequence_numeric_column",
    "tf.contrib.layers": "safe_embedding_lookup_sparse",
    "tf.contrib.learn.python.learn.basic_session_run_hooks": "CheckpointSaverHook "
    "LoggingTensorHook NanLossDuringTrainingError NanTensorHook StepCounterHook StopAtStepHook "
    "SummarySaverHook",
    "tf.contrib.metrics": "confusion_matrix",
    "tf.contrib.tensorboard.plugins": "projector",
    "tf.python.util.nest": "is_sequence",
}
OTHER_OBJECTS = {
    f"{home}.{name}" for home, names in OTHER_OBJECTS.items() for name in names.split()
}


def found(name):
    """Returns the object of a dotted name; None if it does not exist."""
    parts = ["tensorflow" if part == "tf" else part for part in name.split(".")]
    value = None
    for end, part in enumerate(parts, 1):
        value = getattr(value, part, None)
        if value is None:
            try:
                value = importlib.import_module(".".join(parts[:end]))
            except ImportError:
                return None
    return value


def rows():
    """Yields (old name, new name) for the rows that need no other package."""
    for name in sorted(old_names.MOVED):
        fate = old_names.FATES[name]
        is_keras = fate.now.startswith(moved_names.KERAS_OPTIMIZERS)  # or in another package
        if fate.package in ("tf", "legacy_opt") and not is_keras:
            yield name, fate.now


def is_here(target):
    """Whether this TensorFlow has a target: some lack Estimators, v1's layers or an iterator."""
    if target.endswith((".OwnedIterator", "._pywrap_events_writer.EventsWriter")):
        return not versions.has_contrib()
    return versions.has_own_estimator() or not target.startswith(
        ("tf.compat.v1.estimator.", "tf.compat.v1.layers.", "tf.compat.v1.nn.rnn_cell.")
    )


def pieces_in(module):
    """Yields the full names of the functions and classes in a package and its public modules."""
    for name in module.__all__:
        value = vars(module).get(name)
        if isinstance(value, types.ModuleType):
            yield from pieces_in(value)
        else:
            yield f"{module.__name__}.{name}"


def test_every_piece_of_contrib_has_a_row():
    for piece in pieces_in(compat.contrib):
        old = piece.replace("legacy_opt.compat", "tf")
        assert old_names.FATES[old].now == piece and old in old_names.MOVED


def test_the_advice_names_a_package_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(old_names, "is_installed", lambda package: False)
    name = "tf.contrib.tensorboard.plugins.projector.ProjectorConfig"
    advice = old_names.advice(name, is_missing=True)
    assert advice == "The package tensorboard has it (pip install tensorboard)."


def test_every_target_exists():
    with compat.patch_tensorflow():
        missing = [now for _, now in rows() if is_here(now) and found(now) is None]
        homes = {home for home in moved_names.MODULES.values() if home.startswith("tf.")}
        homes -= {"tf.python.ops.gen_training_ops"} if versions.has_contrib() else set()
        assert not missing and all(found(home) is not None for home in homes)


if versions.has_contrib():

    @pytest.mark.contrib
    def test_targets_are_the_same_objects_on_tensorflow_1():
        others = {old for old, now in rows() if is_here(now) and found(old) is not found(now)}
        ours = {old for old, now in rows() if now.startswith("legacy_opt.")}
        ours -= {old for old in ours if old_names.FATES[old].now.startswith(moved_names.ESTIMATOR)}
        assert ours <= others  # tests/contrib compares them
        missing = {old for old, _ in rows() if found(old) is None}
        # Names that had been removed before 1.15, and one that 1.15 has in datasets.base only.
        nccl = {old for old in missing if old.startswith("tf.contrib.nccl.")}
        hooks = {old for old in missing if old.startswith("tf.contrib.estimator.")}
        assert all(name.lower().endswith("hook") for name in hooks) and len(hooks) == 7
        of_data = "tf.contrib.learn.datasets.mnist.Datasets"
        assert missing - hooks - nccl == {"tf.histogram_summary", of_data}
        expected = (OTHER_OBJECTS & {old for old, _ in rows()}) | set(old_names.PARAMETERS)
        assert others - missing - ours == expected

    @pytest.mark.contrib
    @pytest.mark.parametrize("module", sorted(moved_names.MODULES))
    def test_modules_have_the_names_of_contrib(module):
        """Those of tf_slim: see tests/clients/client_names_of_slim.py."""
        home = moved_names.MODULES[module]
        if module.endswith(".distribution_strategy_context"):
            # Functions that an optimizer asks; the rest is TensorFlow's own.
            assert tf.distribute.get_strategy is found(module).get_strategy
        elif home.startswith("tf.") and found(home):
            old, new = found(module), found(home)
            names = {name for name in dir(old) if not name.startswith("_")}
            names -= {"absolute_import", "division", "print_function"}
            names -= {name for name in names if f"{module}.{name}" in old_names.FATES}
            names -= {name for name in names if isinstance(getattr(old, name), types.ModuleType)}
            names -= {name for name in names if f"{module}.{name}" in parameters.POSITIONS}
            assert names <= set(dir(new))
            for name in names if module != "tf.contrib.data" else ():
                assert getattr(old, name) is getattr(new, name)

    @pytest.mark.contrib
    @pytest.mark.parametrize("private", sorted(moved_names.DEFINED_IN))
    def test_private_modules_have_the_objects_of_the_public_ones(private):
        module, public = found(private), found(moved_names.DEFINED_IN[private])
        names = {name for name in dir(public) if not name.startswith("_") and hasattr(module, name)}
        names = {name for name in names if not isinstance(getattr(module, name), types.ModuleType)}
        assert names and all(getattr(module, name) is getattr(public, name) for name in names)

    TRANSFORMATIONS = {
        "map_and_batch": lambda data: data.map_and_batch(lambda x: x * 2, 3),
        "shuffle_and_repeat": lambda data: data.shuffle_and_repeat(5, 2, seed=3),
        "unbatch": lambda data: data.unbatch(),
        "enumerate_dataset": lambda data: data.enumerate_dataset(3),
        "ignore_errors": lambda data: data.ignore_errors(),
        "scan": lambda data: data.scan(np.int64(0), lambda total, x: (total + x, total)),
        "unique": lambda data: data.unique(),
        "dense_to_sparse_batch": lambda data: data.dense_to_sparse_batch(2, [4]),
    }

    @pytest.mark.contrib
    @pytest.mark.parametrize("name", sorted(TRANSFORMATIONS))
    def test_transformations_of_datasets_do_the_same(name):
        def elements(module):
            with tf.Graph().as_default(), v1.Session() as session:
                v1.set_random_seed(1)
                data = tf.data.Dataset.from_tensor_slices(np.arange(12) % 5)
                data = data.batch(2) if "batch" in name and name != "map_and_batch" else data
                data = data.apply(TRANSFORMATIONS[name](module))
                following = v1.data.make_one_shot_iterator(data).get_next()
                values = []
                with contextlib.suppress(tf.errors.OutOfRangeError):
                    while len(values) < 40:
                        found = tf.nest.flatten(session.run(following), expand_composites=True)
                        values.extend(map(np.asarray, found))
                return values

        one, other = elements(tf.contrib.data), elements(v1.data.experimental)
        assert len(one) == len(other) > 3 and all(map(np.array_equal, one, other))

    @pytest.mark.contrib
    def test_other_objects_compute_the_same():
        with tf.Graph().as_default(), v1.Session() as session:
            table = tf.constant(np.random.RandomState(0).rand(5, 2).astype(np.float32))
            ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], np.int64([1, 3, 4]), [3, 2])
            pairs = [
                function(table, ids)
                for function in (
                    tf.contrib.layers.safe_embedding_lookup_sparse,
                    v1.nn.safe_embedding_lookup_sparse,
                )
            ]
            pairs += [
                function([1, 2, 0], [1, 0, 0])
                for function in (tf.contrib.metrics.confusion_matrix, v1.confusion_matrix)
            ]
            values = session.run(pairs)
        np.testing.assert_array_equal(values[0], values[1])
        np.testing.assert_array_equal(values[2], values[3])

else:

    def test_names_are_there_by_attributes_and_by_import():
        with compat.patch_tensorflow() as patch:
            for old, now in rows():
                if not is_here(now):
                    continue
                home, _, name = old.rpartition(".")
                imported = importlib.import_module("tensorflow" + home[2:])
                is_private_and_here = old.startswith("tf.python.") and old not in patch.names
                if is_private_and_here and old == "tf.python.util.nest.is_sequence":
                    continue  # TensorFlow 2.5 has this function and is_nested
                row = old_names.PARAMETERS.get(old)
                expected = parameters.as_in_1(old, found(now), row)
                assert getattr(imported, name) is expected, old
                assert is_private_and_here or patch.names[old] == now
                if not home.startswith("tf.python"):
                    assert found(old.replace("tf", "tf.compat.v1", 1)) is expected, old

    def test_an_iterator_of_contrib_yields_the_elements_of_a_dataset():
        with compat.patch_tensorflow():
            iterator = tf.contrib.eager.Iterator(tf.data.Dataset.range(3))
            assert [int(each) for each in iterator] == [0, 1, 2]

    def test_a_private_module_has_the_data_of_mnist():
        with compat.patch_tensorflow():
            module = importlib.import_module("tensorflow.contrib.learn.python.learn.datasets.mnist")
            assert module.read_data_sets is compat.contrib.learn.datasets.mnist.read_data_sets

    @pytest.mark.parametrize(
        "module, name",
        [
            ("crf.python.ops.crf", "crf_decode"),
            ("data.python.ops.batching", "map_and_batch"),
            ("eager.python.tfe", "GradientTape"),
            ("learn.python.learn.estimators.model_fn", "ModeKeys"),
            ("learn.python.learn.preprocessing.text", "VocabularyProcessor"),
            ("legacy_seq2seq.python.ops.seq2seq", "sequence_loss_by_example"),
            ("lookup.lookup_ops", "index_table_from_tensor"),
            ("metrics.python.ops.metric_ops", "streaming_mean"),
            ("rnn.python.ops.rnn", "stack_bidirectional_dynamic_rnn"),
            ("seq2seq.python.ops.loss", "sequence_loss"),
            ("training.python.training.hparam", "HParams"),
        ],
    )
    def test_private_modules_of_contrib(module, name):
        package, _, last = module.rpartition(".")
        scope = {}
        with compat.patch_tensorflow():
            exec(f"from tensorflow.contrib.{package} import {last}", scope)
            exec(f"from tensorflow.contrib.{module} import {name}", scope)
            public = moved_names.DEFINED_IN["tf.contrib." + module]
            assert getattr(scope[last], name) is scope[name] is found(f"{public}.{name}")
            assert old_names.is_put_back(f"tf.contrib.{module}.{name}")
            assert old_names.is_put_back("tf.contrib." + module)

    def test_a_graph_with_names_that_moved():
        with compat.patch_tensorflow(), tf.Graph().as_default(), v1.Session() as session:
            normal = tf.contrib.distributions.Normal(1.0, 2.0)
            from tensorflow.contrib.compiler import jit

            with jit.experimental_jit_scope():
                value = normal.log_prob(3.0)
            expected = -0.5 - np.log(2 * np.sqrt(2 * np.pi))
            np.testing.assert_allclose(session.run(value), expected, rtol=1e-6)

    def test_events_are_written(tmp_path):
        with compat.patch_tensorflow():
            from tensorflow.python.pywrap_tensorflow import EventsWriter  # noqa: TID251
        writer = EventsWriter(str(tmp_path / "own").encode())
        writer.WriteEvent(v1.Event(step=7))
        writer.Close()
        events = list(v1.train.summary_iterator(writer.FileName()))
        assert [each.step for each in events] == [0, 7]

    @estimators.needed
    def test_private_modules_of_estimators():
        with compat.patch_tensorflow():
            from tensorflow.contrib.estimator.python.estimator import early_stopping
            from tensorflow.contrib.tpu.python.tpu import tpu_context
            from tensorflow.contrib.tpu.python.tpu.bfloat16 import bfloat16_scope
            from tensorflow.python.estimator import estimator, model_fn  # noqa: TID251
            from tensorflow.python.estimator.canned import dnn  # noqa: TID251
            from tensorflow.python.estimator.canned.linear import LinearClassifier  # noqa: TID251
            from tensorflow.python.estimator.export.export import (  # noqa: TID251
                ServingInputReceiver,
            )

            ours = compat.estimator
            assert estimator.Estimator is ours.Estimator and dnn.DNNClassifier is ours.DNNClassifier
            assert model_fn.EstimatorSpec is ours.EstimatorSpec
            assert LinearClassifier is ours.LinearClassifier
            assert ServingInputReceiver is ours.export.ServingInputReceiver
            hook = tf.contrib.estimator.stop_if_no_increase_hook
            assert hook is ours.experimental.stop_if_no_increase_hook
            assert early_stopping.stop_if_no_increase_hook is hook
            assert issubclass(tpu_context.TPUContext, object)
            assert bfloat16_scope is v1.tpu.bfloat16_scope

    def test_every_private_module_of_contrib_can_be_imported():
        with compat.patch_tensorflow():
            for module in moved_names.DEFINED_IN:
                importlib.import_module("tensorflow" + module[2:])

    @pytest.mark.parametrize(
        "module, names",
        [
            ("tensorflow.contrib", "crf training"),
            ("tensorflow.contrib.crf", "crf_decode viterbi_decode"),
            ("tensorflow.contrib.data", "map_and_batch"),
            ("tensorflow.contrib.training.python.training.hparam", "HParams parse_values"),
            ("tensorflow.contrib.opt", "LazyAdamOptimizer"),
        ],
    )
    def test_names_of_a_module_are_listed(module, names):
        scope = {}
        with compat.patch_tensorflow():
            exec(f"from {module} import *", scope)
            listed = dir(importlib.import_module(module))
        assert set(names.split()) <= set(scope) & set(listed)
        assert not [name for name in scope if name.startswith("_") and name != "__builtins__"]

    def test_what_lives_nowhere_says_so():
        with compat.patch_tensorflow():
            with pytest.raises(AttributeError, match="'crossed_column'.*tf.feature_column has new"):
                _ = tf.contrib.layers.crossed_column
            if importlib.util.find_spec("tf_slim") is None:
                with pytest.raises(AttributeError, match=r"tf_slim has it \(pip install tf-slim\)"):
                    _ = tf.contrib.slim.conv2d

    def test_a_patch_ends():
        nest = importlib.import_module("tensorflow.python.util.nest")
        finders = list(sys.meta_path)
        before = inspect.getattr_static(nest, "__getattr__", None)
        with compat.patch_tensorflow():
            assert nest.is_sequence([1]) and not nest.is_sequence(1)
            assert sys.meta_path != finders
        assert sys.meta_path == finders and not hasattr(tf, "contrib")
        assert inspect.getattr_static(nest, "__getattr__", None) is before
        if not hasattr(nest, "is_sequence"):
            with pytest.raises(AttributeError, match="has no attribute 'is_sequence'"):
                _ = nest.is_sequence

    SLIM = {
        "../tf_slim-1.1.0.dist-info/METADATA": "",
        "__init__.py": "from . import learning\nfrom .layers import *\nconv2d = 'conv2d'\n"
        "from .ops.arg_scope import arg_scope\n",
        "ops/__init__.py": "",
        "ops/arg_scope.py": "arg_scope = 'arg_scope'\n",
        "ops/variables.py": "variable = 'variable'\n",
        "learning.py": "train = 'train'\n",
        "layers/__init__.py": "from .initializers import xavier_initializer\n",
        "layers/initializers.py": "xavier_initializer = 'xavier'\n",
        "data/__init__.py": "",
        "data/parallel_reader.py": "reader = object()\n",
        "nets/__init__.py": "",
        "nets/resnet_v1.py": "resnet = 50\n",
    }
    PROGRAM = """
        import sys
        import tensorflow as tf
        from legacy_opt import compat

        with compat.patch_tensorflow() as patch:
            assert "tf_slim" not in sys.modules
            import tensorflow.contrib.slim as slim
            import tensorflow.contrib.slim.learning
            from tensorflow.contrib import slim as again, layers
            from tensorflow.contrib.layers import xavier_initializer
            from tensorflow.contrib.layers.python.layers import initializers
            from tensorflow.contrib.framework.python.ops import arg_scope, variables
            from tensorflow.contrib.framework.python.ops.arg_scope import arg_scope as inner
            from tensorflow.contrib.slim.nets import resnet_v1
            from tensorflow.contrib.slim.python.slim.data import parallel_reader
            import tf_slim
            import tf_slim.data.parallel_reader

            assert slim is again and slim.conv2d is tf_slim.conv2d == "conv2d"
            assert slim.learning is tensorflow.contrib.slim.learning is tf_slim.learning
            assert layers.xavier_initializer == xavier_initializer == "xavier"
            assert arg_scope == inner == "arg_scope" and variables.variable == "variable"
            assert initializers is tf_slim.layers.initializers
            assert resnet_v1 is sys.modules["tf_slim.nets.resnet_v1"]
            assert parallel_reader is tf_slim.data.parallel_reader
            for name, why in (
                ("flatten", "tf_slim has no flatten"),
                ("nothing", "TensorFlow 1.15 has no such public name"),
            ):
                try:
                    getattr(slim, name)
                except AttributeError as error:
                    assert why in str(error), error
                else:
                    assert False
        assert slim.conv2d == "conv2d"
        assert not [name for name in sys.modules if name.startswith("tensorflow.contrib")]
        print("done")
    """

    def test_names_of_tf_slim(tmp_path):
        for name, text in SLIM.items():
            file = tmp_path / "tf_slim" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = programs.run(tmp_path / "program.py", seconds=300, environment={"PYTHONPATH": path})
        assert done.stdout.strip().endswith("done"), done.stderr
