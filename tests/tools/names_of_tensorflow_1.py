"""Records the public names of TensorFlow 1.15, except tf.contrib and Keras.

From the checkout's root::

    .nox/1.15/bin/python -m tests.tools.names_of_tensorflow_1 write
"""

import sys
import types

import tensorflow as tf

from tests.support.paths import ROOT

_FILE = ROOT / "tests" / "data" / "names_tf115.txt"
_LEFT_OUT = ("compat", "keras", "v1", "v2", "absolute_import", "division", "print_function")


def recorded():
    """Returns the recorded names, a set; all begin with "tf."."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    rows = (line.split(": ") for line in lines)
    return {f"{module}.{name}" for module, names in rows for name in names.split()}


def names():
    """Returns the names of the TensorFlow 1 that is installed."""
    return {f"{module}.{name}" for module, name in _walk(tf, "tf")}


def _walk(module, path):
    for name in dir(module):
        if name.startswith("_") or name in _LEFT_OUT:
            continue
        value = getattr(module, name)
        if not isinstance(value, types.ModuleType):
            yield path, name
        elif "_api" in value.__name__ or "api._v" in value.__name__:  # modules of the public API
            yield from _walk(value, f"{path}.{name}")


def _write():
    rows = {}
    for module, name in sorted(_walk(tf, "tf")):
        rows.setdefault(module, []).append(name)
    lines = [f"{module}: {' '.join(found)}\n" for module, found in rows.items()]
    _FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        sys.exit(__doc__)
    _write()
