"""Records which names TensorFlow 1.15 had in the modules that moved as wholes.

From the checkout's root, with tf_slim on PYTHONPATH::

    .nox/1.15/bin/python -m tests.tools.known_names write
"""

import importlib
import pkgutil
import sys
import types
from unittest import mock

from legacy_opt.compat import old_names
from legacy_opt.compat.old_names import moved_names
from tests.tools import names_of_tensorflow_1, signatures_of_tensorflow_1
from tests.tools.signatures_of_tensorflow_1 import found

ROOTS = (
    "tf.compat.v1.data.experimental",
    "tf.compat.v1.distribute.cluster_resolver",
    "tf.compat.v1.keras",
    "tf.compat.v1.signal",
    "tf.python.ops.summary_ops_v2",
    "tf.layers",
    "tf.nn.rnn_cell",
    "tf_slim",
)


def names():
    """Returns {new module: names} of the installed TensorFlow 1; names of submodules have dots."""
    with mock.patch.object(old_names, "KNOWN_NAMES", {}):
        known = {*_recorded(), *_listed(), *names_of_tensorflow_1.names()}
    by_root = {root: [] for root in ROOTS}
    for name in sorted(known):
        root = next((each for each in ROOTS if name.startswith(each + ".")), None)
        is_module = any(other.startswith(name + ".") for other in known)
        if root and not is_module:
            by_root[root].append(name[len(root) + 1 :])
    return by_root


def _recorded():
    for words, _ in signatures_of_tensorflow_1.recorded():
        for old in () if words.startswith(".") else words.split():
            if old not in old_names.FATES:
                yield old_names.find(old).fate.now


def _listed():
    """Yields the new names of the modules' attributes and submodules, if they exist."""
    for home in moved_names.MODULES:
        module = found(home)
        if not isinstance(module, types.ModuleType):  # a function has the module's name
            module = importlib.import_module(home.replace("tf", "tensorflow", 1))
        inner = [each.name for each in pkgutil.iter_modules(getattr(module, "__path__", []))]
        for last in {*dir(module), *inner}:
            now = old_names.find(f"{home}.{last}").fate.now
            is_new = now and now.startswith(ROOTS) and signatures_of_tensorflow_1.is_name(last)
            if is_new and f"{home}.{last}" not in old_names.FATES and found(now) is not None:
                yield now


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        sys.exit(__doc__)
    lines = [f"{root} {' '.join(each)}\n" for root, each in names().items()]
    old_names.KNOWN_NAMES_FILE.write_text("".join(lines), encoding="utf-8")
