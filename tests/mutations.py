"""Breaks the Keras bridge in a copy of the checkout, one line at a time, and sees the tests fail.

    python -m tests.mutations [PYTHON]

PYTHON runs the tests: that of a lane's environment, as `make mutations` passes it; by default the
one that runs this. A mutation that no test notices survives, and then this fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, Tuple

ROOT = Path(__file__).resolve().parent.parent
BRIDGE = "compat/optimizer_v2.py"
STATE = "compat/optimizer_v2_state.py"
EXACT = "tests/test_keras_exact.py"


class Mutation(NamedTuple):
    """One way to break the bridge.

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


def _exact(names, way="function"):
    """Chooses the float32 cells of these optimizers."""
    cells = ["%s::test_float32[%s-%s]" % (EXACT, name, way) for name in names]
    return tuple(cells)


MUTATIONS = (
    Mutation(
        "_finish is not called",
        BRIDGE,
        "finished = self._finish(distribution, [variable for _, variable in pairs])",
        "finished = None",
        _exact(["Adam"]),
    ),
    Mutation(
        "the learning rate stays what it was",
        BRIDGE,
        "rate = self._decayed_lr(tf.float32)",
        "rate = tf.constant(vars(self._adopted)[self._rates[0]], tf.float32)",
        ("tests/test_keras_hyperparameters.py", "-k", "learning_rate_can_be_set"),
    ),
    Mutation(
        "two slots are swapped",
        STATE,
        "return self._slots.get(versions.slot_key(variable), {}).get(slot_name)",
        "slots = self._slots.get(versions.slot_key(variable), {})\n"
        "        others = [slots[name] for name in sorted(slots) if name != slot_name]\n"
        "        return others[0] if slot_name in slots and others else slots.get(slot_name)",
        _exact(["Adadelta", "Adam"]),
    ),
    Mutation(
        "the step stands still",
        BRIDGE,
        "step = tf.cast(self.iterations.read_value(), self._step_dtype)",
        "step = tf.zeros([], self._step_dtype)",
        _exact(["AdagradDA l1, l2", "AdagradDecay"]),
    ),
    Mutation(
        "rows of equal ids are not summed",
        BRIDGE,
        "self._adopted._resource_apply_sparse_duplicate_indices(grad, handle, indices)",
        "self._adopted._resource_apply_sparse(grad, handle, indices)",
        _exact(["Adagrad", "Momentum"]),
    ),
    Mutation(
        "hyperparameters stay what they were",
        BRIDGE,
        "return self._lent(fed)",
        "return self._lent({})",
        ("tests/test_keras_hyperparameters.py", "-k", "what_v1_reads_in_each_step"),
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
        _exact(["Adam"]),
    ),
    Mutation(
        "the learning rate keeps its dtype",
        BRIDGE,
        "lent[attribute] = rate = tf.cast(fed, dtype)",
        "continue",
        (EXACT, "-k", "updates_that_read_the_learning_rate"),
    ),
)


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
            "The mutation %r is stale: its text occurs %d times in %s. Bring tests/mutations.py up "
            "to date." % (mutation.name, count, mutation.file)
        )
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")


def copy_checkout(target):
    shutil.copytree(
        str(ROOT), target, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    )


def run_tests(root, python, words):
    """Runs tests of a copy; returns whether they passed, and pytest's last line.

    Raises:
      RuntimeError: no test was run, or pytest broke down.
    """
    environment = dict(os.environ, PYTHONPATH=root, PYTHONDONTWRITEBYTECODE="1")
    result = subprocess.run(
        [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *words],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if result.returncode not in (0, 1):
        raise RuntimeError("pytest could not run %s:\n%s" % (" ".join(words), result.stdout))
    return result.returncode == 0, result.stdout.strip().splitlines()[-1]


def run(python):
    """Runs the tests without and with each mutation; returns whether all went as it should."""
    print("%-50s %-10s %s" % ("mutation", "", "tests"))
    good = True
    for words in dict.fromkeys(mutation.tests for mutation in MUTATIONS):
        good &= _report("(none) " + words[-1].split("::")[-1], python, words, None)
    for mutation in MUTATIONS:
        good &= _report(mutation.name, python, mutation.tests, mutation)
    return good


def _report(name, python, words, mutation):
    with tempfile.TemporaryDirectory() as home:
        root = os.path.join(home, "checkout")
        copy_checkout(root)
        if mutation is not None:
            mutate(root, mutation)
        passed, last = run_tests(root, python, words)
    if mutation is None:
        good, verdict = passed, "passes" if passed else "FAILS"
    else:
        good, verdict = not passed, "SURVIVED" if passed else "caught"
    print("%-50s %-10s %s" % (name, verdict, last), flush=True)
    return good


if __name__ == "__main__":
    sys.exit(not run(sys.argv[1] if len(sys.argv) > 1 else sys.executable))
