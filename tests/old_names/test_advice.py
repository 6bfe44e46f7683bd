"""Tests that what `legacy-opt audit` says about old names is true, by doing what it says.

`tests/clients/client_names_of_slim.py` tests the advice that names tf_slim.
"""

import pytest

from legacy_opt import versions
from legacy_opt.compat.old_programs import old_names
from tests.support import estimators
from tests.support.paths import ROOT
from tests.support.processes import programs
from tests.tools import advice

WORDS = [""]
if advice.NEEDS_PACKAGES:
    keras = f"tf_keras {advice.LEGACY_KERAS}"
    WORDS += ["tf_keras", keras, "tensorflow_estimator tf_keras"]


def printed(*words):
    """Returns what `tests.tools.advice` prints, in a process that has imported only TensorFlow."""
    command = ["-m", "tests.tools.advice", *words]
    setting = dict(word.split("=") for word in words if "=" in word)  # read with TensorFlow
    run = programs.run_in_new_python if setting else programs.run
    done = run(*command, seconds=300, environment=setting)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@estimators.needed
@pytest.mark.every_lane
@pytest.mark.parametrize("words", WORDS)
def test_every_statement_is_true(words):
    assert not printed(*words.split())


if not versions.has_contrib():

    @pytest.mark.every_lane
    def test_what_run_has_is_no_manual_work():
        assert not printed("manual")


EXAMPLES = {
    "tf.estimator": "legacy_opt.compat.estimator",
    "tf.estimator.Estimator": "legacy_opt.compat.estimator.Estimator",
    "tf.estimator.Estimator.train": "legacy_opt.compat.estimator.Estimator.train",
    "tf.estimator.inputs.numpy_input_fn": "legacy_opt.compat.estimator.inputs.numpy_input_fn",
    "tf.estimator.tpu.TPUConfig": "legacy_opt.compat.estimator.tpu.TPUConfig",
    "tf.contrib.tpu.RunConfig": "legacy_opt.compat.estimator.tpu.RunConfig",
    "tf.contrib.tpu.TPUEstimator": "legacy_opt.compat.estimator.tpu.TPUEstimator",
    "tf.estimator.tpu.CrossShardOptimizer": None,
    "tf.estimator.NoSuchEstimator": None,
    "tf.examples.tutorials.mnist.input_data.read_data_sets": "legacy_opt.compat.contrib.learn."
    "datasets.mnist.read_data_sets",
    "tf.examples.tutorials.mnist.input_data.no_such_function": None,
    "tf.contrib.framework.nest.flatten": "tf.nest.flatten",
    "tf.contrib.framework.nest.is_sequence": "tf.nest.is_nested",
    "tf.contrib.framework.nest.flatten_up_to": "tensorflow.python.util.nest.flatten_up_to",
    "tf.contrib.learn.preprocessing.VocabularyProcessor.restore": "legacy_opt.compat.contrib.learn."
    "preprocessing.VocabularyProcessor.restore",
    "tf.contrib.learn.ModeKeys.INFER": "legacy_opt.compat.contrib.learn.ModeKeys.INFER",
    "tf.contrib.training.HParams.parse": "legacy_opt.compat.contrib.training.HParams.parse",
    "tf.contrib.layers": "tf_slim",
    "tf.contrib.layers.python.layers.l2_regularizer": "tf_slim.l2_regularizer",
    "tf.contrib.layers.python.layers.initializers": "tf_slim.layers.initializers",
    "tf.contrib.framework.python.ops.variables": "tf_slim.ops.variables",
    "tf.contrib.slim.learning.create_train_op": "tf_slim.learning.create_train_op",
    "tf.contrib.keras.optimizers.Adam": "tf.keras.optimizers.Adam",
    # Names that 1.15 did not have.
    "tf.contrib.data.foo": None,
    "tf.contrib.framework.CriticalSection": None,
    "tf.contrib.keras.layers.foo": None,
    "tf.contrib.layers.foo": None,
    "tf.contrib.losses.foo": None,
    "tf.contrib.metrics.foo": None,
    "tf.contrib.signal.foo": None,
    "tf.contrib.slim.foo": None,
    "tf.contrib.slim.learning.foo": None,
    "tf.contrib.slim.nest.flatten": None,
    "tf.contrib.summary.foo": None,
    "tf.layers.Foo": None,
    "tf.nn.rnn_cell.Foo": None,
}


@pytest.mark.once
def test_examples(tmp_path):
    file = tmp_path / "script.py"
    file.write_text("\n".join(["import tensorflow as tf", *EXAMPLES]))
    uses = advice.audited(str(file))
    assert dict(zip(EXAMPLES, (use.instead for use in uses))) == EXAMPLES
    manual = {name for name, use in zip(EXAMPLES, uses) if use.status == "manual"}
    assert manual == {name for name, instead in EXAMPLES.items() if instead is None}
    assert all(use.advice for use in uses if use.instead is None)
    found = old_names.find("tf.contrib.keras.optimizers.Adam")  # another rule answers first
    assert old_names.new_name(found.name, found) == "tf.compat.v1.keras.optimizers.Adam"


@pytest.mark.once
def test_audit_of_our_scripts_says_only_what_is_tested_above():
    known = {(row.status, row.instead, row.advice) for row in advice.rows()}
    uses = advice.audited(str(ROOT / "tests" / "scripts"), str(ROOT / "examples_graph_mode"))
    others = {use for use in uses if (use.status, use.instead, use.advice) not in known}
    assert len(uses) > 200
    assert {use.name for use in others if use.status != "stays"} <= {
        "tf.train.GGTOptimizer",
        "tf.train.WeightedMomentumOptimizer",
        "class AdamWeightDecayOptimizer(tf.train.Optimizer)",
    }
