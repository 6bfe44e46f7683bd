"""Records the public names of TensorFlow 1.15, except Keras; those of tf.contrib apart.

From the checkout's root::

    .nox/1.15/bin/python -m tests.tools.names_of_tensorflow_1 write
"""

import sys
import types

import tensorflow as tf

from tests.support.paths import ROOT

_FILE = ROOT / "tests" / "data" / "names_tf115.txt"
_FILE_OF_CONTRIB = ROOT / "tests" / "data" / "names_of_contrib_tf115.txt"
_LEFT_OUT = ("compat", "keras", "v1", "v2", "absolute_import", "division", "print_function")


def recorded(file=_FILE):
    """Returns the recorded names, a set; all begin with "tf."."""
    lines = file.read_text(encoding="utf-8").splitlines()
    rows = (line.split(": ") for line in lines)
    return {f"{module}.{name}" for module, names in rows for name in names.split()}


def recorded_of_contrib():
    """Returns the recorded names that are directly in the modules of tf.contrib."""
    return recorded(_FILE_OF_CONTRIB)


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


def _walk_contrib():
    for name in dir(tf.contrib):
        module = getattr(tf.contrib, name)
        if isinstance(module, types.ModuleType) and ".contrib." in module.__name__:
            for each in dir(module):
                is_module = isinstance(getattr(module, each), types.ModuleType)
                if not (is_module or each.startswith("_") or each in _LEFT_OUT):
                    yield f"tf.contrib.{name}", each


def _write(file, found):
    rows = {}
    for module, name in sorted(found):
        rows.setdefault(module, []).append(name)
    lines = [f"{module}: {' '.join(names)}\n" for module, names in rows.items()]
    file.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["write"]:
        sys.exit(__doc__)
    _write(_FILE, _walk(tf, "tf"))
    _write(_FILE_OF_CONTRIB, _walk_contrib())
