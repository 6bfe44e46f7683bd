"""`compat.patch_tensorflow`: names that TensorFlow lost, or never had, put where old code looks."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
from importlib.machinery import ModuleSpec
from typing import Any

import tensorflow as tf

import legacy_opt
from legacy_opt import versions

from .. import old_names

_lock = threading.RLock()
_patches = set()  # those in force
_names = {}  # what they put back: old name, new name
_removals = []  # functions that take it away again, to be called from the last to the first
_own_modules = {}  # those made here, by name; they outlive patches, as others may hold them


def patch_tensorflow() -> Patch:
    """Puts names that TensorFlow lost, or that only DeepRec had, where old code looks for them.

    `tf.train.AdagradDecayOptimizer`, `AdagradDecayOptimizerV2`, `AdamAsyncOptimizer` and
    `AdamWOptimizer`, the optimizers of `tf.contrib.opt`, `tf.contrib.layers.optimize_loss`,
    `tf.contrib.training.create_train_op` and `tf.contrib.estimator.clip_gradients_by_norm` are
    then those of `legacy_opt`, and `tf.contrib.tpu.CrossShardOptimizer` and
    `tf.contrib.framework.get_or_create_global_step` TensorFlow's own: in `tf` and in
    `tf.compat.v1`, as attributes and for `import`. A name that TensorFlow has stays its own, so
    do all of `tf.contrib` on 1.15. Nothing else changes: TensorFlow 1's behaviour comes by
    `tf.compat.v1.disable_v2_behavior()`.

    Example::

        with compat.patch_tensorflow():
            import old_model_code

    What the code has imported there it keeps: `from tensorflow.contrib import opt`, or `import
    tensorflow.contrib.opt as opt`. What it looks up in `tf` or imports later, in a function, it
    finds only while a patch is in force.

    Returns:
      A `Patch`: a context manager, which without `with` lasts until its `undo()`. Patches may
      overlap: the names go with the last of them.
    """
    patch = Patch()
    with _lock:
        _patches.add(patch)
        try:
            if len(_patches) == 1:
                _put_all()
            patch.names = dict(_names)
        except BaseException:
            patch.undo()
            raise
    return patch


class Patch:
    """What `patch_tensorflow` returns.

    Attributes:
      names: what has been put back, as a dict from old name to new name:
        `{"tf.train.AdamAsyncOptimizer": "legacy_opt.AdamAsyncOptimizer", …}`.
    """

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.undo()

    def undo(self) -> None:
        """Takes the names away, if no other patch is in force; then TensorFlow is as before.

        A module of old names that somebody holds still has them.
        """
        with _lock:
            _patches.discard(self)
            if not _patches:
                while _removals:
                    _removals.pop()()
                _names.clear()


def _put_all():
    with_contrib = versions.has_contrib()
    private = {}
    for name, public in old_names.PUBLIC_NAMES.items():
        private.setdefault(public, []).append(name)
    for old, fate in old_names.FATES.items():
        in_contrib = old.startswith("tf.contrib.")
        if not (in_contrib or (old.startswith("tf.") and fate.kind == old_names.OURS)):
            continue
        value = None if in_contrib and with_contrib else _value(fate.now)
        if value is None:
            continue
        put = [_put(name, value) for name in [old] + private.get(old, [])]
        if put[0]:
            _names[old] = fate.now


def _value(name):
    """Returns what stands under a name of today, or None where there is no such thing here."""
    if name is None:
        return None
    root, *path = name.split(".")
    found = {"legacy_opt": legacy_opt, "tf": tf}[root]
    for part in path:
        found = getattr(found, part, None)
    return found


def _put(old, value):
    """Puts a value under an old name wherever that is missing; returns whether it was."""
    *path, name = old.split(".")[1:]
    places = [(tf, "tensorflow"), (tf.compat.v1, "tensorflow.compat.v1")]
    if path[0] == "python":  # TensorFlow's private modules, which are not attributes of it
        places = [(importlib.import_module("tensorflow.python"), "tensorflow.python")]
        path = path[1:]
    put = [_set(_module(root, at, path), name, value) for root, at in places]
    return any(put)


def _module(root, name, path):
    """Returns the module at the end of a path from `root`; makes those that are missing.

    Args:
      root: a module.
      name: by which it is imported.
      path: names in it.
    """
    # Else an import of one would load another one, and put that in its place.
    _register(name, root)
    for part in path:
        name += "." + part
        child = getattr(root, part, None)
        if child is None:
            child = _new_module(name.replace(".compat.v1.", "."))
            _set(root, part, child)
        _register(name, child)
        root = child
    return root


def _new_module(name):
    if name in sys.modules:
        return sys.modules[name]
    if name in _own_modules:
        return _own_modules[name]
    module = _own_modules[name] = types.ModuleType(
        name, "Old names, put back by legacy_opt.compat.patch_tensorflow."
    )
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    module.__package__, module.__path__ = name, []
    module.__getattr__ = functools.partial(_tell_of_missing, name)
    return module


def _register(name, module):
    if name not in sys.modules:
        sys.modules[name] = module
        _removals.append(functools.partial(sys.modules.pop, name, None))


def _tell_of_missing(module, name):
    found = old_names.find(f"{module}.{name}")
    advice = f" ({found.fate.advice})" if found and not name.startswith("__") else ""
    raise AttributeError(f"module {module!r} has no attribute {name!r}{advice}")


def _set(module, name, value):
    """Gives a module an attribute that it lacks; returns whether it has it from here."""
    is_own = module in _own_modules.values()
    if hasattr(module, name):
        return is_own and getattr(module, name) is value
    names = vars(versions.plain_module(module))
    names[name] = value
    if is_own:
        return True

    def remove():
        if names.get(name) is value:
            del names[name]

    _removals.append(remove)
    return True
