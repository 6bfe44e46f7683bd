"""Records which names TensorFlow 1.15 had in the modules that moved as wholes.

From the checkout's root, with tf_slim on PYTHONPATH::

    .nox/1.15/bin/python -m tests.tools.known_names write
"""

import importlib
import pkgutil
import sys
import types

from legacy_opt.compat.old_programs import old_names
from legacy_opt.compat.old_programs.old_names import NEED_PACKAGES, moved_names
from tests.tools.signatures_of_tensorflow_1 import found, is_name

_OF_SLIM = ("evaluation", "layers", "learning", "losses", "metrics")
HOMES = (
    "tf.compat.v1.data.experimental",
    "tf.compat.v1.distribute.cluster_resolver",
    "tf.compat.v1.keras",
    "tf.compat.v1.keras.layers",
    "tf.compat.v1.signal",
    "tf.layers",
    "tf.nn.rnn_cell",
    "tf.python.ops.summary_ops_v2",
    "tf_slim",
    *(f"tf_slim.{name}" for name in _OF_SLIM),
)


def names():
    """Returns {new module: its names that the installed TensorFlow 1 has in the old modules}."""
    old_modules = {home: [home] if home in NEED_PACKAGES else [] for home in HOMES}
    for old, home in moved_names.MODULES.items():
        old_modules.get(home, []).append(old)
    for name in _OF_SLIM:
        old_modules[f"tf_slim.{name}"].append(f"tf.contrib.slim.{name}")
    return {
        home: sorted(
            name
            for name in set().union(*map(_names_in, old_modules[home]))
            if is_name(name) and found(f"{home}.{name}") is not None
        )
        for home in HOMES
    }


def _names_in(path):
    module = found(path)
    if not isinstance(module, types.ModuleType):  # a function has the module's name
        module = importlib.import_module(path.replace("tf", "tensorflow", 1))
    inner = pkgutil.iter_modules(getattr(module, "__path__", []))
    return {*dir(module), *(each.name for each in inner)}


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        sys.exit(__doc__)
    lines = [f"{home} {' '.join(each)}\n" for home, each in names().items()]
    old_names.KNOWN_NAMES_FILE.write_text("".join(lines), encoding="utf-8")
