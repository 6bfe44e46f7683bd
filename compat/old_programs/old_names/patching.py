"""`compat.patch_tensorflow`: puts old names back into TensorFlow for code that still uses them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import itertools
import re
import sys
import threading
import types
from importlib.machinery import ModuleSpec
from typing import Any, Dict, Optional

import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.optimizers import decay_of_contrib

from .. import old_names
from . import moved_names, parameters

_lock = threading.RLock()
_patches = set()  # the active patches
_added = {}  # {id of a module of TensorFlow: {added name: a function that returns the object}}
_names = {}  # the names that the patches put back: {old name: new name}
_removals = []  # functions that undo the changes, to be called in reverse order
# The modules that patches have created, by name. The modules stay in this dict after the patch,
# because user code may use them.
_own_modules = {}


# Old code must train as before. So these public names, whose objects differ from the originals on
# purpose, are replaced by objects without the difference.
_AS_ORIGINALLY: Dict[Any, Any] = {
    "legacy_opt." + name: getattr(decay_of_contrib, name)
    for name in (
        "AdamWOptimizer",
        "DecoupledWeightDecayExtension",
        "MomentumWOptimizer",
        "extend_with_decoupled_weight_decay",
    )
}


def patch_tensorflow(native: bool = False) -> Patch:
    """Adds the optimizer names that TensorFlow removed, and the names of DeepRec, to TensorFlow.

    DeepRec is a fork of TensorFlow 1.15. After the call, the following names, among others, refer
    to objects of `legacy_opt`: `tf.train.AdagradDecayOptimizer`,
    `tf.train.AdagradDecayOptimizerV2`, `tf.train.AdamAsyncOptimizer`, `tf.train.AdamWOptimizer`,
    the optimizers of `tf.contrib.opt` that `legacy_opt` has, `tf.contrib.layers.optimize_loss`,
    `tf.contrib.training.create_train_op` and `tf.contrib.estimator.clip_gradients_by_norm`. Other
    names, such as `tf.contrib.tpu.CrossShardOptimizer` and
    `tf.contrib.framework.get_or_create_global_step`, refer to objects of TensorFlow. The names are
    added to `tf` and to `tf.compat.v1`, and `import` finds them, too. AdamW, MomentumW and
    `extend_with_decoupled_weight_decay` refer to variants of `legacy_opt`'s objects, which decay
    the same variables as the originals (`legacy-opt docs differences_from_originals`). Names that
    TensorFlow has are not replaced, with one exception: on 1.15, if `native` is True, optimizers of
    `tf.contrib.opt` are replaced.

    From TensorFlow 2.16 on, `tf.estimator` is added, too (see `legacy_opt.compat.estimator`). If
    `tf.keras` is Keras 3, the modules `tf.compat.v1.layers` and `tf.compat.v1.nn.rnn_cell` do not
    work; they are replaced by the modules of tf_keras. The packages that these modules need are
    imported on first use; if a package is missing, the error names the package.

    Nothing else changes, so call `tf.compat.v1.disable_v2_behavior()` if you need TensorFlow 1's
    behaviour.

    Example::

        with compat.patch_tensorflow():
            import old_model_code

    A module that the block imports, for example with `from tensorflow.contrib import opt`, keeps
    its attributes after the block. Names that the code looks up in `tf`, and names that a function
    imports when it is called, are found only while a patch is active.

    Args:
      native: whether new optimizers of `legacy_opt` and of TensorFlow use native kernels (see
        `legacy-opt docs native`). If several patches are active and `native` is True for at least
        one of them, new optimizers use native kernels until the last patch ends.

    Returns:
      A `Patch`, a context manager. Without `with`, the patch is active until `undo()` is called. If
      several patches are active, the names are removed when the last of these patches ends.
    """
    patch = Patch()
    with _lock:
        _patches.add(patch)
        try:
            if len(_patches) == 1:
                _put_all()
                _put_removed_modules()
            if native:
                _accelerate_new_optimizers()
            patch.names = dict(_names)
        except BaseException:
            patch.undo()
            raise
    return patch


class Patch:
    """An active patch of TensorFlow's names, returned by `patch_tensorflow`.

    Attributes:
      names: a dict from each added name to the new name of the object, or of the object that it is
        a variant of: `{"tf.train.AdamAsyncOptimizer": "legacy_opt.AdamAsyncOptimizer", …}`.
    """

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.undo()

    def undo(self) -> None:
        """Removes the names from TensorFlow, unless another patch is still active.

        The modules that `patch_tensorflow` created keep the names, because user code may have
        imported these modules.
        """
        with _lock:
            _patches.discard(self)
            if not _patches:
                while _removals:
                    _removals.pop()()
                _names.clear()


def _accelerate_new_optimizers():
    base = tf.compat.v1.train.Optimizer
    original = base.__init__
    if hasattr(original, "before_patch"):
        return

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if not hasattr(self, "native"):  # the class is TensorFlow's, or a subclass of such a class
            with contextlib.suppress(TypeError):  # raised if the class has no native kernels
                legacy_opt.native.accelerate(self)

    __init__.before_patch = original
    base.__init__ = __init__
    _removals.append(functools.partial(setattr, base, "__init__", original))
    _removals.append(legacy_opt.native.enable())
    if versions.has_contrib():
        # The constructors of tf.contrib.opt's classes call the `__init__` above before they set the
        # attributes that `accelerate` needs. So replace these classes by legacy_opt's classes.
        for old, fate in old_names.FATES.items():
            place, _, name = old.rpartition(".")
            cls = _value(fate.now) if place == "tf.contrib.opt" else None
            if isinstance(cls, type) and issubclass(cls, base) and hasattr(cls, "updates_together"):
                original_class = getattr(tf.contrib.opt, name)
                undo = functools.partial(setattr, tf.contrib.opt, name, original_class)
                _removals.append(undo)
                setattr(tf.contrib.opt, name, cls)


def _put_all():
    has_contrib = versions.has_contrib()  # and tf.examples
    private_names = {}
    for name, public in old_names.PUBLIC_NAMES.items():
        private_names.setdefault(public, []).append(name)
    for old, fate in old_names.FATES.items():
        in_contrib = old.startswith(("tf.contrib.", "tf.examples."))
        is_ours = old.startswith("tf.") and fate.kind == old_names.OURS
        is_moved = old in old_names.MOVED
        if not (in_contrib or is_ours or is_moved) or (in_contrib and has_contrib):
            continue
        if is_moved:
            if fate.is_here:
                _put_later(old, fate)
            continue
        value = _value(fate.now)
        if value is None:
            continue
        is_added = _put(old, value)
        for name in private_names.get(old, []):
            _put(name, value)
        if is_added:
            _names[old] = fate.now
    if not has_contrib:
        for module, home in moved_names.MODULES.items():
            if old_names.Fate(home, "").is_here:
                _modules_called(module)
        for module in moved_names.DEFINED_IN:
            _modules_called(module)
        sys.meta_path.insert(0, _MovedModules)
        _removals.append(functools.partial(sys.meta_path.remove, _MovedModules))


def _put_later(old, fate):
    """Makes the modules of an old name look up its object when it is used."""
    home, _, name = old.rpartition(".")
    modules = _modules_called(home)
    if all(name in vars(versions.plain_module(each)) for each in modules):
        return  # TensorFlow has the name
    for module in modules:
        if not _is_own(module):
            _add(module, name, functools.partial(_moved, home, name))
    _names[old] = fate.now


def _add(module, name, find):
    """Lets a module of TensorFlow answer to a name that it lacks, and that `dir` does not list.

    Programs walk through the classes of `dir(tf.train)`, and expect TensorFlow's only.

    Args:
      module: the module.
      name: the name.
      find: a function that returns the object.
    """
    names = vars(versions.plain_module(module))
    if id(names) not in _added:
        _added[id(names)] = _answer_for(module, names)
    _added[id(names)][name] = find


def _answer_for(module, names):
    """Returns a dict, empty so far, from names to functions; a module gets names from it, too."""
    added = {}
    original = names.get("__getattr__")

    def getattr_(name):
        if name in added:
            return added[name]()
        if original is not None:
            return original(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    names["__getattr__"] = getattr_

    def remove():
        del _added[id(names)]
        if original is None:
            names.pop("__getattr__", None)
        else:
            names["__getattr__"] = original

    _removals.append(remove)
    return added


def _put_removed_modules():
    for home, path, name, origin, stand_in in versions.removed_modules():
        _register(path, home)
        if hasattr(home, name):  # TensorFlow has a module of this name, but without attributes
            _removals.append(functools.partial(setattr, home, name, getattr(home, name)))
            setattr(home, name, stand_in)
        else:
            _set(home, name, stand_in)
        _register(stand_in.__name__, stand_in)
        _names["tf" + stand_in.__name__[len("tensorflow") :]] = origin


# New modules that are modules of Keras 2, wherever it is installed.
_OF_KERAS = {
    moved_names.KERAS: versions.keras_1,
    moved_names.KERAS_OPTIMIZERS: versions.keras_optimizers_1,
}


def _value(name):
    """Returns the object to put for a new name, or None if it is not here."""
    if name is None or name in _AS_ORIGINALLY:
        return _AS_ORIGINALLY.get(name)
    if name.startswith("tensorflow_estimator."):
        versions.estimator()  # makes the package work with this TensorFlow
    value = None
    for full_name in itertools.accumulate(name.split("."), "{}.{}".format):
        if full_name in _OF_KERAS:
            try:
                value = _OF_KERAS[full_name]()
                continue
            except ImportError:
                return None
        try:
            value = getattr(value, full_name.rpartition(".")[2])
        except AttributeError:
            try:
                value = importlib.import_module(re.sub(r"^tf\b", "tensorflow", full_name))
            except ImportError:
                return None
    return value


def _put(old, value):
    """Adds an object under an old name wherever the name is missing.

    Returns:
      Whether the name was added.
    """
    module, _, name = old.rpartition(".")
    added = [_set(each, name, value) for each in _modules_called(module)]
    return any(added)


def _modules_called(name):
    """Returns the modules to which an old name of a module refers, and creates missing ones."""
    path = name.split(".")[1:]
    places = [(tf, "tensorflow")]
    places += [(each, "tensorflow.compat.v1") for each in versions.modules_v1()]
    if path[:1] == ["python"]:  # private modules, which are not attributes of `tf`
        places = [(importlib.import_module("tensorflow.python"), "tensorflow.python")]
        path = path[1:]
    return [_module(root, root_name, path) for root, root_name in places]


def _module(root, name, path):
    """Returns a submodule of `root`. Creates this submodule and its parents if they are missing.

    Args:
      root: a module.
      name: the name under which `root` is imported.
      path: the names that lead from `root` to the submodule.
    """
    # Register the existing module in sys.modules; otherwise `import` would load a second copy and
    # replace the module by this copy.
    _register(name, root)
    for part in path:
        name += "." + part
        child = vars(root).get(part) if _is_own(root) else getattr(root, part, None)
        if child is None and name.startswith("tensorflow.python."):
            with contextlib.suppress(ImportError):
                child = importlib.import_module(name)  # TensorFlow has not imported it yet
        if child is None:
            child = _new_module(name.replace(".compat.v1.", "."))
            if old_names.public_name(name) not in old_names.MOVED:  # a function has the name
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
    module.__package__ = name
    module.__path__ = []
    module.__getattr__ = functools.partial(_moved, name)
    module.__dir__ = functools.partial(_names_of, module)
    return module


def _is_own(module):
    return module in _own_modules.values()


def _register(name, module):
    if name not in sys.modules:
        sys.modules[name] = module
        _removals.append(functools.partial(sys.modules.pop, name, None))


def _moved(module, name):
    """Returns the object of a module of tf.contrib that lives elsewhere now.

    Raises:
      AttributeError: there is no such object, or its package is not installed.
    """
    full_name = f"{module}.{name}"
    if name == "__all__":  # `from … import *` asks for it
        return [each for each in _names_of(_own_modules[module]) if not each.startswith("_")]
    is_private = name.startswith("_") and old_names.public_name(full_name) not in old_names.MOVED
    entry = None if is_private else old_names.find(full_name)
    if entry is not None and entry.name == old_names.public_name(full_name):
        value = _value(entry.fate.now)
        if value is not None:
            row = old_names.PARAMETERS.get(entry.name)
            return parameters.as_in_1(entry.name, value, row)
    advice = f" ({old_names.advice(full_name, is_missing=True)})" if entry else ""
    raise AttributeError(f"module {module!r} has no attribute {name!r}{advice}")


def _names_of(module):
    """Returns the names of a module of tf.contrib, for `dir` and `from … import *`."""
    names = {name.rpartition(".")[2] for name in old_names.names_in(module.__name__)}
    home = _value(old_names.whole_module(module.__name__))
    if home is not None:
        names.update(
            name
            for name, value in list(vars(home).items())  # a thread may import meanwhile
            if not (name.startswith("_") or isinstance(value, types.ModuleType))
        )
    return sorted({*vars(module), *(name for name in names if _has(module, name))})


def _has(module, name):
    try:
        return hasattr(module, name)
    except ImportError:  # the name is there, but needs a package that is missing
        return True


_PARENTS = r"tensorflow\.(compat\.v1\.)?(contrib|examples|python\.estimator)\b"


class _MovedModules(importlib.abc.Loader):
    """A finder for imports of modules that tf.contrib had, and that live elsewhere now."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """Returns the `ModuleSpec` of a module of tf.contrib; None for other modules."""
        parent, _, last = name.rpartition(".")
        if not re.match(_PARENTS, parent):
            return None
        home = sys.modules[parent]
        module = getattr(home, last, None)
        if module is None and home.__name__ != parent:
            with contextlib.suppress(ImportError):
                module = importlib.import_module(f"{home.__name__}.{last}")
        return ModuleSpec(name, cls(module)) if isinstance(module, types.ModuleType) else None

    def __init__(self, module: types.ModuleType):
        self._module = module

    def create_module(self, spec: ModuleSpec) -> None:
        """Lets Python create an empty module, which `exec_module` replaces."""

    def exec_module(self, module: types.ModuleType):
        """Puts the module that lives elsewhere in the place of the empty one."""
        sys.modules[module.__name__] = self._module
        _removals.append(functools.partial(sys.modules.pop, module.__name__, None))


def _set(module, name, value):
    """Adds an attribute if a module lacks it; returns whether this or an earlier patch added it."""
    if not _is_own(module):
        is_missing = not hasattr(module, name)
        if is_missing:
            _add(module, name, lambda: value)
        return is_missing
    return vars(module).setdefault(name, value) is value
