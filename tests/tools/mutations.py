"""Breaks one function at a time in a copy of the checkout, and asserts that tests then fail.

    python -m tests.tools.mutations

If `tf.keras` is Keras 2, the program breaks the OptimizerV2 bridge (`to_keras` for Keras 2) and the
code that moves a training between a TF1 graph and Keras. Otherwise, it breaks the Keras 3 bridge
(`to_keras` for Keras 3). The program fails if the tests of a mutation pass.
"""

import ast
import collections
import functools
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


class Mutation(NamedTuple):
    """One way to break the product.

    Attributes:
      name: what the mutation makes wrong.
      function: the qualified name of a function of the product, such as "Class.method". It must be
        unique.
      old: an expression or statements that occur once in the function, where their format may be
        different; or WHOLE, if the mutation replaces the function's body.
      new: the code that replaces `old`.
      tests: pytest's arguments that select the tests which must fail.
    """

    name: str
    function: str
    old: str
    new: str
    tests: Tuple[str, ...]


WHOLE = "..."


def _of_both(exact, learning_rate, step, hyperparameters, dtypes):
    """Returns the mutations of the code that the bridges to Keras 2 and Keras 3 share.

    Args:
      exact: a function of optimizers' names that returns pytest's arguments for tests of their
        exact results.
      learning_rate: pytest's arguments for tests that set the learning rate between steps.
      step: pytest's arguments for tests of optimizers that use the global step.
      hyperparameters: pytest's arguments for tests that set other hyperparameters between steps.
      dtypes: pytest's arguments for tests of updates that read the learning rate in other dtypes
        than float32.
    """
    return (
        Mutation(
            "the learning rate stays constant",
            "V1Driver._rate_attributes",
            "rate = self._step.rate",
            "rate = tf.constant(vars(self.leaf)[inputs.rates[0]], tf.float32)",
            learning_rate,
        ),
        Mutation(
            "the global step stays 0",
            "V1Driver._step_attributes",
            "values[inputs.step] = _of_dtype(step, inputs.step_dtype)",
            "values[inputs.step] = tf.zeros([], inputs.step_dtype)",
            step,
        ),
        Mutation(
            "rows of equal ids are not summed",
            "V1Driver.update_sparse",
            "update = self.optimizer._resource_apply_sparse_duplicate_indices",
            "update = self.optimizer._resource_apply_sparse",
            exact("Adagrad", "Momentum"),
        ),
        Mutation(
            "hyperparameters stay constant",
            "V1Driver.with_hyperparameters",
            "present = self._step.hyperparameters",
            "present = {}",
            hyperparameters,
        ),
        Mutation(
            "the learning rate keeps its dtype",
            "V1Driver._with_rate_of_dtype",
            "rates[attribute] = tf.cast(rate, dtype)",
            "continue",
            dtypes,
        ),
    )


# The OptimizerV2 bridge.

DATASETS = "tests/keras_bridge/test_ending_datasets.py"
EXACT = "tests/keras_bridge/test_exact.py"
HYPERPARAMETERS = "tests/keras_bridge/test_hyperparameters.py"


def _exact(*names):
    """Returns pytest's arguments for the float32 tests of these optimizers."""
    return tuple(f"{EXACT}::test_float32[optimizer_v2-{name}-function]" for name in names)


OPTIMIZER_V2 = _of_both(
    exact=_exact,
    learning_rate=(HYPERPARAMETERS, "-k", "optimizer_v2 and learning_rate_can_be_set"),
    step=_exact("AdagradDA l1, l2", "AdagradDecay"),
    hyperparameters=(HYPERPARAMETERS, "-k", "optimizer_v2 and what_v1_reads_in_each_step"),
    dtypes=(EXACT, "-k", "optimizer_v2 and updates_that_read_the_learning_rate"),
) + (
    Mutation(
        "_finish is not called",
        "BridgedOptimizer._distributed_apply",
        "finished = self._v1.finish(distribution, [variable for _, variable in pairs])",
        "finished = None",
        _exact("Adam"),
    ),
    Mutation(
        "writes do not wait for the gradients",
        "BridgedOptimizer._distributed_apply",
        "writes_after([grad for grad, _ in pairs])",
        "writes_after([])",
        (DATASETS, "-k", "optimizer_v2 and unknown_length"),
    ),
    Mutation(
        "two slots are swapped",
        "Keras2State.existing_slot",
        "return self._slots.get(versions.slot_key(variable), {}).get(slot_name)",
        "slots = self._slots.get(versions.slot_key(variable), {})\n"
        "others = [slots[name] for name in sorted(slots) if name != slot_name]\n"
        "return others[0] if slot_name in slots and others else slots.get(slot_name)",
        _exact("Adadelta", "Adam"),
    ),
    Mutation(
        "slots that are created after a restore are not restored",
        "Keras2State.get_or_create_slot",
        "self._restore_slot_variable(slot_name, variable, slot)",
        "None",
        (EXACT, "-k", "restored_before_it_has_slots"),
    ),
    Mutation(
        "a restore forgets the values of slots that do not exist yet",
        "Keras2State._create_or_restore_slot_variable",
        "deferred.setdefault(versions.slot_key(variable), []).append(slot_variable_position)",
        "deferred.setdefault(versions.slot_key(variable), [])",
        (EXACT, "-k", "restored_before_it_has_slots"),
    ),
    Mutation(
        "non-slot variables are initialized with zeros",
        "Keras2State._new_shared",
        "lambda shape, dtype=None, **_: value",
        "lambda shape, dtype=None, **_: tf.zeros_like(value)",
        _exact("Adam"),
    ),
)


# The Keras 3 bridge.

CORNERS_3 = "tests/keras_bridge/test_keras3_corners.py"
EXACT_3 = "tests/keras_bridge/test_keras3_exact.py"
CHECKPOINTS_3 = "tests/keras_bridge/test_keras3_checkpoints.py"
CLIPPING = "tests/keras_bridge/test_clipping.py"
FEATURES_3 = "tests/keras_bridge/test_keras3_features.py"


def _exact_3(*names):
    """Returns pytest's arguments for the float32 tests of these optimizers."""
    return EXACT, "-k", " or ".join(f"test_float32[keras3-{name}-" for name in names)


KERAS_3 = _of_both(
    exact=_exact_3,
    learning_rate=(HYPERPARAMETERS, "-k", "keras3 and learning_rate_can_be_set"),
    step=_exact_3("AdagradDA", "AdagradDecay"),
    hyperparameters=(HYPERPARAMETERS, "-k", "keras3 and what_v1_reads_in_each_step_can_be_set"),
    dtypes=(EXACT, "-k", "keras3 and updates_that_read_the_learning_rate"),
) + (
    Mutation(
        "_finish is not called",
        "BridgedOptimizer._distributed_tf_update_step",
        "self._v1.finish(distribution, [variable for _, variable in pairs])",
        "None",
        _exact_3("Adam"),
    ),
    Mutation(
        "writes do not wait for the gradients",
        "BridgedOptimizer.apply",
        "writes_after(grads)",
        "writes_after([])",
        (DATASETS, "-k", "keras3 and unknown_length"),
    ),
    Mutation(
        "gradients are clipped before rows of equal ids are summed",
        "clipped",
        "pairs = with_summed_duplicates([(grad, None) for grad in grads])",
        "pairs = [(grad, None) for grad in grads]",
        (CLIPPING, "-k", "keras3 and sums_repeated_ids_first"),
    ),
    Mutation(
        "sparse gradients are not divided by the loss scale",
        "DivisibleRows.__truediv__",
        "return with_values(self, self.values / tf.cast(divisor, self.values.dtype))",
        "return self",
        (CLIPPING, "-k", "loss_scale_that_is_a_power"),
    ),
    Mutation(
        "an overridden apply_gradients counts the step a second time",
        "BridgedOptimizer._apply_and_count",
        "variable.assign(before)",
        "None",
        (FEATURES_3, "-k", "overridden_apply_gradients"),
    ),
    Mutation(
        "setting a hyperparameter has no effect",
        "Keras3Hyperparameters.set",
        "self[name].assign(value)",
        "None",
        (HYPERPARAMETERS, "-k", "keras3 and what_v1_reads_in_each_step_can_be_set"),
    ),
    Mutation(
        "gradients keep the dtype that LossScaleOptimizer returns",
        "of_dtype",
        "grad is None or grad.dtype == variable.dtype",
        "True",
        ("tests/keras_bridge/test_mixed_precision.py", "-k", "variables_of_other_dtypes"),
    ),
    Mutation(
        "the learning rate has Keras' default dtype",
        "BridgedOptimizer._make_rate_float32",
        'getattr(variable, "dtype", "float32") != "float32"',
        "False",
        (EXACT_3, "-k", "float32_whatever_the_default"),
    ),
    Mutation(
        "slots have the variable's dtype",
        "Keras3State.get_or_create_slot",
        "self._create(name, new)",
        "self._create(name, new._replace(dtype=variable.dtype))",
        _exact_3("AdagradDecay"),
    ),
    Mutation(
        "two slots are swapped",
        "Keras3State.existing_slot",
        "slot = self._slots_of.get(self._var_key(variable), {}).get(slot_name)",
        "slots = self._slots_of.get(self._var_key(variable), {})\n"
        "others = [slots[name] for name in sorted(slots) if name != slot_name]\n"
        "slot = others[0] if slot_name in slots and others else slots.get(slot_name)",
        _exact_3("Adadelta", "Adam"),
    ),
    Mutation(
        "non-slot variables are initialized with zeros",
        "Keras3State._new_shared",
        "lambda: value",
        "lambda: tf.zeros_like(value)",
        _exact_3("Adam"),
    ),
    Mutation(
        "slots of another optimizer are ignored silently",
        "SavedUnderNames._create_or_restore_slot_variable",
        WHOLE,
        "return None",
        (CHECKPOINTS_3, "-k", "another_optimizer_is_refused and built-plain"),
    ),
    Mutation(
        "learning rate decays of v1 count batches, not updates",
        "BridgedOptimizer._get_current_learning_rate",
        "self._v1.values.counts_updates",
        "False",
        (CORNERS_3, "-k", "decays_of_v1_count_updates"),
    ),
    Mutation(
        "hyperparameters are variables in TF1 graphs as well",
        "Keras3Hyperparameters.tensors",
        "self.are_constants",
        "False",
        ("tests/keras_bridge/test_keras3_graph.py",),
    ),
    Mutation(
        "saved state without slots is loaded into an optimizer with slots",
        "_is_built",
        "return bool(shapes.get(_TRAINED))",
        "return len(_shapes_before_build(shapes)) + 1 < len(shapes)",
        (CORNERS_3, "-k", "state_without_slots"),
    ),
    Mutation(
        "saved state with other names is loaded",
        "SavedVariables._misfit",
        "own.get(name) != saved.get(name)",
        "False",
        (CHECKPOINTS_3, "-k", "another_optimizer_is_refused and built-plain"),
    ),
)

_MOVING = tuple(Mutation(*each) for each in MOVING)
MUTATIONS = {2: OPTIMIZER_V2 + _MOVING, 3: KERAS_3}  # by the generation of Keras


def mutate(root, mutation):
    """Applies a mutation to a file of the checkout at `root`; removes the file's comments."""
    path, tree = mutated(root, mutation)
    path.write_text(ast.unparse(tree), encoding="utf-8")


def mutated(root, mutation):
    """Returns the path of the file that a mutation changes, and the file's changed syntax tree.

    Raises:
      ValueError: not exactly one function has the name `mutation.function`, or `mutation.old` does
        not occur exactly once in this function.
    """
    paths = _homes(str(root)).get(mutation.function, [])
    if len(paths) != 1:
        raise _stale(mutation, f"there are {len(paths)} functions {mutation.function}")
    (path,) = paths
    tree = _parsed(path)
    function = dict(_functions(tree))[mutation.function]
    new = ast.parse(mutation.new).body
    if mutation.old == WHOLE:
        function.body = new
    else:
        replacing = _Replacing(ast.parse(mutation.old).body, new)
        replacing.visit(function)
        if replacing.count != 1:
            raise _stale(mutation, f"its text occurs {replacing.count} times in {path.name}")
    return path, ast.fix_missing_locations(tree)


@functools.lru_cache(maxsize=None)
def _homes(root):
    """Returns a dict from qualified names of functions to the product's files that define them."""
    homes = collections.defaultdict(list)
    for folder in "legacy_opt", "compat":
        for path in sorted(Path(root, folder).rglob("*.py")):
            for name, _ in _functions(_parsed(path)):
                homes[name].append(path)
    return homes


def _parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def _functions(node, prefix=""):
    """Yields the qualified name and the node of each function, except nested functions."""
    for each in node.body:
        if isinstance(each, ast.ClassDef):
            yield from _functions(each, prefix + each.name + ".")
        elif isinstance(each, ast.FunctionDef):
            yield prefix + each.name, each


class _Replacing(ast.NodeTransformer):
    """Replaces statements by other statements, or an expression by another expression."""

    def __init__(self, old, new):
        self._old, self._new, self.count = list(map(ast.dump, old)), new, 0
        self._is_expression = len(old) == 1 and isinstance(old[0], ast.Expr)
        if self._is_expression:
            self._old = ast.dump(old[0].value)

    def visit(self, node):
        if self._is_expression and ast.dump(node) == self._old:
            self.count += 1
            return self._new[0].value
        if not self._is_expression:
            for field in "body", "orelse", "finalbody":
                self._replace_in(getattr(node, field, None))
        return self.generic_visit(node)

    def _replace_in(self, statements):
        if not isinstance(statements, list):  # the body of a lambda is an expression
            return
        dumps, length = list(map(ast.dump, statements)), len(self._old)
        for start in range(len(statements) - length, -1, -1):
            if dumps[start : start + length] == self._old:
                self.count += 1
                statements[start : start + length] = self._new


def _stale(mutation, why):
    return ValueError(f"The mutation {mutation.name!r} is stale: {why}. Bring it up to date.")


def copy_checkout(target):
    shutil.copytree(
        str(ROOT), target, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    )


def run_tests(root, words):
    """Runs tests in a copy of the checkout; returns whether they passed, and pytest's last line.

    Raises:
      RuntimeError: pytest found no test, or pytest itself failed.
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
        raise RuntimeError(f"pytest could not run {' '.join(words)}:\n{result.stdout}")
    return result.returncode == 0, result.stdout.strip().splitlines()[-1]


def run(mutations):
    """Runs the tests without a mutation (they must pass) and with each mutation (they must fail).

    Returns:
      Whether all tests passed or failed as required.
    """
    row = f"%-{max(len(mutation.name) for mutation in mutations)}s %-10s %s"
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
