"""Executes the advice of `legacy-opt audit` on old names.

A program that uses every name of the table of old names is audited; each piece of advice is then
tried in a process that may import only the packages that the advice names. From the checkout's
root, this prints the untrue advice that names tf_slim::

    .nox/2.21/bin/python -m tests.tools.advice tf_slim
"""

import builtins
import collections
import os
import re
import sys
import tempfile
from unittest import mock

from legacy_opt import compat, versions
from legacy_opt.compat.old_programs import old_names
from legacy_opt.compat.old_programs.old_names import moved_names
from legacy_opt.compat.old_programs.source_analysis.optimizer_uses import audit
from tests.tools import names_of_tensorflow_1, signatures_of_tensorflow_1

LEGACY_KERAS = "TF_USE_LEGACY_KERAS=1"
# The packages that advice may need, and how it names them.
PACKAGES = {
    "tf_slim": r"\btf[_-]slim\b",
    "tensorflow_estimator": r"\btensorflow-estimator\b|docs estimators",
    "tf_keras": r"\btf-keras\b|docs estimators",
    "tensorboard": r"pip install tensorboard",
}
_NAME = re.compile(r"\b(?:tf|legacy_opt|tf_slim|tensorboard|scipy|numpy)(?:\.\w+)+")
# What advice says about all names of a module.
_HAS_ALL = re.compile(r"\bIt moved to [^;]*|[^.;]*(?:\.\w+)*(?<!some) has it\b.*")
# Attributes and names that our scripts use, and that the table of old names does not list.
_USED = """
scipy.sparse.linalg.eigen.arpack.eigsh tf.contrib.learn.ModeKeys.INFER
tf.contrib.learn.ModeKeys.TRAIN tf.contrib.slim.metrics.streaming_accuracy
tf.estimator.ModeKeys.TRAIN
"""
_FIRST = re.compile(r"import (\S+) first")
# On these lanes, the packages of Estimators, Keras 2 and tensorboard belong to TensorFlow.
NEEDS_PACKAGES = not versions.has_own_estimator()
_OF_TENSORFLOW = ("tensorflow_estimator", "tensorboard")
# Old names that TensorFlow 1.15 has, while it lacks the new private name.
_NOT_ON_1_15 = r"tensorflow\.python\.(ops\.gen_training_ops|.*OwnedIterator|.*EventsWriter)"

Row = collections.namedtuple("Row", ["name", "status", "instead", "advice"])


def rows():
    """Returns a `Row` for each verdict of `audit` on an old name, for a user without packages."""
    names = {name for name in names_of_tensorflow_1.recorded() if old_names.is_removed(name)}
    names.update(old_names.FATES, old_names.PUBLIC_NAMES, old_names.LIBRARIES)
    names.update(names_of_tensorflow_1.recorded_of_contrib())
    names.update(moved_names.MODULES, moved_names.DEFINED_IN, _USED.split())
    for words, _ in signatures_of_tensorflow_1.recorded():
        owners = owners if words.startswith(".") else words.split()  # noqa: F821
        names.update(each + words if words.startswith(".") else each for each in owners)
    names = sorted(names)
    long_names = {"tf": "tensorflow", "tfa": "tensorflow_addons"}
    roots = sorted({name.partition(".")[0] for name in names})
    imports = [f"import {long_names.get(root, root)} as {root}" for root in roots]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join([*imports, *names]))
        uses = [use for use in audited(path) if use.line > len(imports)]
    return [
        Row(names[use.line - len(imports) - 1], use.status, use.instead, use.advice) for use in uses
    ]


def audited(*paths):
    """Returns what `audit` says about files, for a user who has not installed any package."""
    with mock.patch.object(old_names, "is_installed", lambda package: False):
        return audit(list(paths))[0]


def needs(row):
    """Returns what must be installed or set for a row on this lane, a tuple of words."""
    text = f"{row.instead or ''}. {row.advice}"
    found = [name for name, pattern in PACKAGES.items() if re.search(pattern, text)]
    if LEGACY_KERAS in text:
        found.append(LEGACY_KERAS)
    return tuple(found if NEEDS_PACKAGES else [name for name in found if name == "tf_slim"])


def untrue(found_rows):
    """Yields a text for each statement of the rows that is not true here."""
    compared = {}
    for words, text in signatures_of_tensorflow_1.recorded():
        if text.startswith("(") and not versions.has_contrib():
            compared.update(dict.fromkeys(words.split(), text))
    for row in found_rows:
        for name in _FIRST.findall(row.advice):
            found(name)
        for claim in _lacking(row):
            yield f"{row.name}: it is not there, but {claim}"
        for name in _names(row):
            value = found(name)
            if value is None and not _is_of_this_lane(row, name):
                yield f"{row.name}: there is no {name} ({row.advice})"
            elif name == row.instead and row.name in compared:
                old, new = compared[row.name], signatures_of_tensorflow_1.described(value)
                verdict, text = signatures_of_tensorflow_1.verdict(row.name, old, new)
                if verdict == "another meaning" and not re.search("arameters|by name", row.advice):
                    yield f"{row.name}: {name}: {text}"


def _lacking(row):
    """Returns the modules that do not have a name of the row, but all names, as its advice says."""
    entry = old_names.find(row.name)
    claim = _HAS_ALL.search(row.advice)
    if (
        claim is None
        or row.instead
        or entry.name not in old_names.MODULES
        or row.name == entry.name
    ):
        return []
    last = row.name.rpartition(".")[2]
    homes = _NAME.findall(claim.group())
    is_there = any(found(f"{home}.{last}") is not None for home in homes)
    return [] if is_there else [claim.group()]


def _names(row):
    instead = re.findall(r"\w[\w.]*", row.instead or "")  # it may be an expression
    names = instead + [name for name in _NAME.findall(row.advice) if not _is_old(name)]
    return [name for name in names if not _is_method(name)]


def _is_old(name):
    return name.startswith(("tf.contrib", "tf.examples"))


def _is_method(name):
    """Whether a name is an attribute of a class of another package, which can lack it one day."""
    home = name.rpartition(".")[0]
    owner = found(home) if home and not name.startswith("legacy_opt.") else None
    return isinstance(owner, type) and found(name) is None


def _is_of_this_lane(row, name):
    """Whether code needs no replacement here, because TensorFlow or a library has the old name."""
    is_own = not row.name.startswith(("tf.contrib", "tf.python"))
    if is_own and not name.startswith("legacy_opt."):
        return found(row.name) is not None
    return versions.has_contrib() and re.match(_NOT_ON_1_15, name)


def found(name, tensorflow="tensorflow.compat.v1"):
    """Returns the object that code gets by a name, after its import; None if there is none.

    Args:
      name: the dotted name.
      tensorflow: the module that the code imports as `tf`.
    """
    if name.startswith("tf."):
        root = "tensorflow" if name.startswith("tf.compat.") else tensorflow
        return signatures_of_tensorflow_1.found(name.replace("tf", root, 1))
    return getattr(builtins, name, None) or signatures_of_tensorflow_1.found(name)


def there_though_manual(found_rows):
    """Yields the names that are manual work, but that `legacy-opt run` has."""
    with compat.patch_tensorflow():
        for row in found_rows:
            is_put_back = row.name.startswith(("tf.contrib.", "tf.examples.")) or NEEDS_PACKAGES
            is_of_keras = row.name.startswith("tf.contrib.keras.") and not NEEDS_PACKAGES
            is_claimed = row.status == "manual" and is_put_back and not is_of_keras
            if is_claimed and row.name.startswith("tf.") and found(row.name, "tensorflow"):
                yield row.name


class Blocker:
    """Finds no module of packages that are not allowed, even if they are installed."""

    def __init__(self, allowed):
        optional = [*PACKAGES, "tensorflow_probability", "tensorflow_addons"]
        if not NEEDS_PACKAGES:  # TensorFlow itself needs these
            optional = [name for name in optional if name not in _OF_TENSORFLOW]
        # Keras has imported scikit-learn and SciPy if they are installed.
        self._blocked = set(optional).difference(allowed, sys.modules)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self._blocked:
            raise ModuleNotFoundError(f"The advice does not name {name}.", name=name)


def main(words):
    """Prints the untrue advice that needs just the given packages and settings."""
    if words == ["manual"]:
        print("\n".join(there_though_manual(rows())))
        return
    sys.meta_path.insert(0, Blocker(words))
    chosen = [row for row in rows() if set(needs(row)) == set(words)]
    assert len(chosen) > 1, f"no advice needs just {words}"
    print("\n".join(untrue(chosen)))


if __name__ == "__main__":
    main(sys.argv[1:])
