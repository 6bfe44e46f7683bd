"""Breaks the Keras bridges in a copy of the checkout, one line at a time, and sees the tests fail.

    python -m tests.tools.mutations

Breaks the bridge to the Keras that `tf.keras` is: the OptimizerV2 bridge, and what moves a training
between a TF1 graph and Keras; or the Keras 3 bridge. A mutation that no test notices survives, and
then this fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, Tuple

from legacy_opt import versions
from tests.support.paths import ROOT
from tests.tools.moving_mutations import MOVING

DRIVING = "compat/driving.py"


class Mutation(NamedTuple):
    """One way to break a bridge.

    Attributes:
      name: what it does.
      file: the file it changes.
      old: the text it replaces, which occurs once.
      new: what takes its place.
      tests: words for pytest that choose the tests which should notice.
    """

    name: str
    file: str
    old: str
    new: str
    tests: Tuple[str, ...]


def _of_both(exact, learning_rate, step, hyperparameters, dtypes):
    """Returns the mutations of what both bridges share.

    Args:
      exact: returns the words that choose the exactness tests of the optimizers it is called with.
      learning_rate: the tests of a learning rate that is set between steps.
      step: the tests of optimizers that go by the step.
      hyperparameters: the tests of other hyperparameters that are set between steps.
      dtypes: the tests of updates that read the learning rate, in other dtypes than float32.
    """
    return (
        Mutation(
            "the learning rate stays what it was",
            DRIVING,
            "rate = self._current_rate()",
            "rate = tf.constant(vars(self._adopted)[self._rates[0]], tf.float32)",
            learning_rate,
        ),
        Mutation(
            "the step stands still",
            DRIVING,
            "lent[feed.step] = tf.cast(self._current_step(), feed.step_dtype)",
            "lent[feed.step] = tf.zeros([], feed.step_dtype)",
            step,
        ),
        Mutation(
            "rows of equal ids are not summed",
            DRIVING,
            "update = self._adopted._resource_apply_sparse_duplicate_indices",
            "update = self._adopted._resource_apply_sparse",
            exact("Adagrad", "Momentum"),
        ),
        Mutation(
            "hyperparameters stay what they were",
            DRIVING,
            'return _lent(self._leaf(), {"_" + name: value for name, value in fed.items()})',
            "return _lent(self._leaf(), {})",
            hyperparameters,
        ),
        Mutation(
            "the learning rate keeps its dtype",
            DRIVING,
            "lent[attribute] = tf.cast(fed, dtype)",
            "continue",
            dtypes,
        ),
    )


# The OptimizerV2 bridge.

BRIDGE = "compat/optimizer_v2.py"
STATE = "compat/optimizer_v2_state.py"
EXACT = "tests/keras_bridge/test_keras_exact.py"


def _exact(*names):
    """Chooses the float32 cells of these optimizers."""
    return tuple("%s::test_float32[%s-function]" % (EXACT, name) for name in names)


OPTIMIZER_V2 = _of_both(
    exact=_exact,
    learning_rate=(
        "tests/keras_bridge/test_keras_hyperparameters.py",
        "-k",
        "learning_rate_can_be_set",
    ),
    step=_exact("AdagradDA l1, l2", "AdagradDecay"),
    hyperparameters=(
        "tests/keras_bridge/test_keras_hyperparameters.py",
        "-k",
        "what_v1_reads_in_each_step",
    ),
    dtypes=(EXACT, "-k", "updates_that_read_the_learning_rate"),
) + (
    Mutation(
        "_finish is not called",
        BRIDGE,
        "finished = self._finish(distribution, [variable for _, variable in pairs])",
        "finished = None",
        _exact("Adam"),
    ),
    Mutation(
        "two slots are swapped",
        STATE,
        "return self._slots.get(versions.slot_key(variable), {}).get(slot_name)",
        "slots = self._slots.get(versions.slot_key(variable), {})\n"
        "        others = [slots[name] for name in sorted(slots) if name != slot_name]\n"
        "        return others[0] if slot_name in slots and others else slots.get(slot_name)",
        _exact("Adadelta", "Adam"),
    ),
    Mutation(
        "slots that are created after a restore stay new",
        STATE,
        "            self._restore_slot_variable(slot_name, variable, slot)\n",
        "",
        (EXACT, "-k", "restored_before_it_has_slots"),
    ),
    Mutation(
        "slots are not restored before they exist",
        STATE,
        "deferred.setdefault(versions.slot_key(variable), []).append(slot_variable_position)",
        "deferred.setdefault(versions.slot_key(variable), [])",
        (EXACT, "-k", "restored_before_it_has_slots"),
    ),
    Mutation(
        "variables that all share start anew",
        STATE,
        "initializer=lambda shape, dtype=None, **_: value,",
        "initializer=lambda shape, dtype=None, **_: tf.zeros_like(value),",
        _exact("Adam"),
    ),
)


# The Keras 3 bridge.

BRIDGE_3 = "compat/keras3.py"
SETTING_3 = "compat/keras3_hyperparameters.py"
STATE_3 = "compat/keras3_state.py"
SAVING_3 = "compat/keras3_saving.py"
CORNERS_3 = "tests/keras_bridge/test_keras3_corners.py"
EXACT_3 = "tests/keras_bridge/test_keras3_exact.py"
CHECKPOINTS_3 = "tests/keras_bridge/test_keras3_checkpoints.py"
CLIPPING_3 = "tests/keras_bridge/test_keras3_clipping.py"
FEATURES_3 = "tests/keras_bridge/test_keras3_features.py"
HYPERPARAMETERS_3 = "tests/keras_bridge/test_keras3_hyperparameters.py"


def _exact_3(*names):
    """Chooses the float32 cells of these optimizers."""
    return EXACT_3, "-k", " or ".join("test_float32[%s]" % name for name in names)


KERAS_3 = _of_both(
    exact=_exact_3,
    learning_rate=(HYPERPARAMETERS_3, "-k", "learning_rate_can_be_set"),
    step=_exact_3("AdagradDA", "AdagradDecay"),
    hyperparameters=(HYPERPARAMETERS_3, "-k", "what_v1_reads_in_each_step_can_be_set"),
    dtypes=(EXACT_3, "-k", "updates_that_read_the_learning_rate"),
) + (
    Mutation(
        "_finish is not called",
        BRIDGE_3,
        "            self._finish(distribution, [variable for _, variable in pairs])\n",
        "",
        _exact_3("Adam"),
    ),
    Mutation(
        "gradients are clipped before rows of equal ids are summed",
        BRIDGE_3,
        "pairs = clipping.gathered([(grad, None) for grad in grads])",
        "pairs = [(grad, None) for grad in grads]",
        (CLIPPING_3, "-k", "sums_repeated_ids_first"),
    ),
    Mutation(
        "the loss scale of sparse gradients stays in them",
        BRIDGE_3,
        "return _with_values(self, self.values / tf.cast(divisor, self.values.dtype))",
        "return self",
        (CLIPPING_3, "-k", "loss_scale_that_is_a_power"),
    ),
    Mutation(
        "an apply_gradients of its own counts the step as well",
        BRIDGE_3,
        "            step.assign(before)  # Keras advances it\n",
        "            pass\n",
        (FEATURES_3, "-k", "apply_gradients_of_its_own"),
    ),
    Mutation(
        "a hyperparameter that is set stays what it was",
        SETTING_3,
        "            self._hyper[name].assign(value)\n",
        "",
        (HYPERPARAMETERS_3, "-k", "what_v1_reads_in_each_step_can_be_set"),
    ),
    Mutation(
        "gradients stay as wide as LossScaleOptimizer makes them",
        BRIDGE_3,
        "    if grad is None or grad.dtype == variable.dtype:\n",
        "    if True:\n",
        ("tests/keras_bridge/test_keras3_mixed_precision.py", "-k", "variables_of_other_dtypes"),
    ),
    Mutation(
        "the learning rate has the dtype that Keras makes by default",
        SETTING_3,
        'if getattr(variable, "dtype", "float32") != "float32":',
        "if False:",
        (EXACT_3, "-k", "float32_whatever_the_default"),
    ),
    Mutation(
        "slots have the variable's dtype",
        STATE_3,
        '"%s_%s" % (self._path_of(variable), slot_name), shape, dtype, initial_value',
        '"%s_%s" % (self._path_of(variable), slot_name), shape, variable.dtype, initial_value',
        _exact_3("AdagradDecay"),
    ),
    Mutation(
        "two slots are swapped",
        STATE_3,
        "slot = self._slots_of.get(self._var_key(variable), {}).get(slot_name)",
        "slots = self._slots_of.get(self._var_key(variable), {})\n"
        "        others = [slots[name] for name in sorted(slots) if name != slot_name]\n"
        "        slot = others[0] if slot_name in slots and others else slots.get(slot_name)",
        _exact_3("Adadelta", "Adam"),
    ),
    Mutation(
        "variables that all share start anew",
        STATE_3,
        "name, value.shape, value.dtype, lambda: value, aggregation",
        "name, value.shape, value.dtype, lambda: tf.zeros_like(value), aggregation",
        _exact_3("Adam"),
    ),
    Mutation(
        "slots of another optimizer are restored without a word",
        SAVING_3,
        "def _create_or_restore_slot_variable(self, *args, **kwargs):",
        "def _refuse(self, *args, **kwargs):",
        (CHECKPOINTS_3, "-k", "another_optimizer_is_refused and built-plain"),
    ),
    Mutation(
        "decays of v1 count accumulated batches",
        SETTING_3,
        "if self._by_updates and is_schedule:",
        "if False:",
        (CORNERS_3, "-k", "decays_of_v1_count_updates"),
    ),
    Mutation(
        "hyperparameters are variables in TF1 graphs as well",
        SETTING_3,
        "        if self._graph_is_built:\n            return {}\n",
        "",
        ("tests/keras_bridge/test_keras3_graph.py",),
    ),
    Mutation(
        "state without slots is loaded where there are some",
        SAVING_3,
        "return bool(shapes.get(_TRAINED))",
        "return len(_unbuilt(shapes)) + 1 < len(shapes)",
        (CORNERS_3, "-k", "state_without_slots"),
    ),
    Mutation(
        "state of other names is loaded",
        SAVING_3,
        "            if own.get(name) != saved.get(name):\n",
        "            if False:\n",
        (CHECKPOINTS_3, "-k", "another_optimizer_is_refused and built-plain"),
    ),
)

_MOVING = tuple(Mutation(*each) for each in MOVING)
MUTATIONS = {2: OPTIMIZER_V2 + _MOVING, 3: KERAS_3}  # by the generation of Keras


def mutate(root, mutation):
    """Applies a mutation to the checkout at `root`.

    Raises:
      ValueError: its text does not occur exactly once.
    """
    path = Path(root, mutation.file)
    text = path.read_text(encoding="utf-8")
    count = text.count(mutation.old)
    if count != 1:
        raise ValueError(
            "The mutation %r is stale: its text occurs %d times in %s. Bring this file up to date."
            % (mutation.name, count, mutation.file)
        )
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")


def copy_checkout(target):
    shutil.copytree(
        str(ROOT), target, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    )


def run_tests(root, words):
    """Runs tests of a copy; returns whether they passed, and pytest's last line.

    Raises:
      RuntimeError: no test was run, or pytest broke down.
    """
    environment = dict(os.environ, PYTHONPATH=root, PYTHONDONTWRITEBYTECODE="1")
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*pytest, *words],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if result.returncode not in (0, 1):
        raise RuntimeError("pytest could not run %s:\n%s" % (" ".join(words), result.stdout))
    return result.returncode == 0, result.stdout.strip().splitlines()[-1]


def run(mutations):
    """Runs the tests without and with each mutation; returns whether all went as it should."""
    row = "%%-%ds %%-10s %%s" % max(len(mutation.name) for mutation in mutations)
    print(row % ("mutation", "", "tests"))
    good = True
    for words in dict.fromkeys(mutation.tests for mutation in mutations):
        passed, last = _tests_of_a_copy(words)
        print(row % ("(none)", "passes" if passed else "FAILS", last), words[-1], flush=True)
        good &= passed
    for mutation in mutations:
        passed, last = _tests_of_a_copy(mutation.tests, mutation)
        print(row % (mutation.name, "SURVIVED" if passed else "caught", last), flush=True)
        good &= not passed
    return good


def _tests_of_a_copy(words, mutation=None):
    with tempfile.TemporaryDirectory() as home:
        root = os.path.join(home, "checkout")
        copy_checkout(root)
        if mutation is not None:
            mutate(root, mutation)
        return run_tests(root, words)


if __name__ == "__main__":
    sys.exit(not run(MUTATIONS[versions.keras_facts()["generation"]]))
