"""`compat.patch_tensorflow`: puts old names back into TensorFlow for code that still uses them."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import itertools
import re
import sys
import threading
import types
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.optimizers import decay_of_contrib

from .. import old_names
from . import module_attributes, moved_names, parameters

_lock = threading.RLock()
_Place = Tuple[types.ModuleType, str]  # a module, and the name under which it is imported
_patches: Set[Patch] = set()  # the active patches
_names: Dict[str, str] = {}  # the names that the patches put back: {old name: new name}
_removals: List[Callable[[], Any]] = []  # they undo the changes, and are called in reverse order
# {import name: module that a patch has created}. They stay here, because user code may use them.
_stand_ins: Dict[str, types.ModuleType] = {}
_answering: Set[int] = set()  # the ids of TensorFlow's modules that answer to old names

# Public names whose objects train differently from the originals on purpose. Old code must train as
# before, so it gets variants that train like the originals.
_AS_ORIGINALLY: Dict[str, Any] = {
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

    DeepRec is a fork of TensorFlow 1.15. The names are added to `tf` and to `tf.compat.v1`, and
    `import` finds them, too. Most refer to objects of `legacy_opt`: the optimizers of
    `tf.contrib.opt` that `legacy_opt` has, `tf.train.AdagradDecayOptimizer`,
    `tf.train.AdamAsyncOptimizer`, `tf.contrib.layers.optimize_loss` and others. AdamW, MomentumW
    and `extend_with_decoupled_weight_decay` are variants, which decay the same variables as the
    originals (`legacy-opt docs differences_from_originals`). Some names, such as
    `tf.contrib.tpu.CrossShardOptimizer`, refer to objects of TensorFlow. Names that TensorFlow has
    are not replaced, with one exception: on 1.15, if `native` is True, optimizers of
    `tf.contrib.opt` are replaced.

    From TensorFlow 2.16 on, `tf.estimator` is added, too (see `legacy_opt.compat.estimator`). If
    `tf.keras` is Keras 3, the modules `tf.compat.v1.layers` and `tf.compat.v1.nn.rnn_cell` do not
    work, and modules of tf_keras replace them. Packages that these modules need are imported on
    first use. If a package is missing, the error names it.

    Nothing else changes. For TensorFlow 1's behaviour, call `tf.compat.v1.disable_v2_behavior()`.

    Example::

        with compat.patch_tensorflow():
            import old_model_code

    A module that the block imports, for example with `from tensorflow.contrib import opt`, keeps
    its attributes after the block. Lookups in `tf`, and imports in functions that are called later,
    find the names only while a patch is active.

    Args:
      native: whether new optimizers of `legacy_opt` and of TensorFlow use native kernels (see
        `legacy-opt docs native`). If it is True for one of several active patches, new optimizers
        use native kernels until the last patch ends.

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
      names: {old name: new name}. For a variant, the new name is that of the object it varies.
    """

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.undo()

    def undo(self) -> None:
        """Removes the names from TensorFlow, unless another patch is still active.

        Modules that `patch_tensorflow` created keep the names, because user code may use them.
        """
        with _lock:
            _patches.discard(self)
            if not _patches:
                while _removals:
                    _removals.pop()()
                _names.clear()
                _answering.clear()


def _accelerate_new_optimizers() -> None:
    base = tf.compat.v1.train.Optimizer
    original = base.__init__
    if hasattr(original, "before_patch"):  # another active patch has replaced it already
        return

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not hasattr(self, "native"):  # the class is TensorFlow's, or a subclass of such a class
            with contextlib.suppress(TypeError):  # raised if the class has no native kernels
                legacy_opt.native.accelerate(self)

    __init__.before_patch = original
    base.__init__ = __init__
    _removals.append(functools.partial(setattr, base, "__init__", original))
    disable = legacy_opt.native.enable()
    _removals.append(disable)
    if versions.has_contrib():
        # The constructors of tf.contrib.opt's classes call the `__init__` above before they set the
        # attributes that `accelerate` needs. So replace these classes by legacy_opt's classes.
        for old, fate in old_names.FATES.items():
            home, _, name = old.rpartition(".")
            cls = _value(fate.now) if home == "tf.contrib.opt" else None
            is_optimizer = isinstance(cls, type) and issubclass(cls, base)
            if is_optimizer and hasattr(cls, "updates_together"):  # it may have native kernels
                replaced = getattr(tf.contrib.opt, name)
                _removals.append(functools.partial(setattr, tf.contrib.opt, name, replaced))
                setattr(tf.contrib.opt, name, cls)


def _put_all() -> None:
    """Creates the modules that TensorFlow lacks, and lets modules answer to the old names."""
    has_contrib = versions.has_contrib()  # if so, TensorFlow has tf.examples, too
    names = {
        name: fate.now
        for name, fate in old_names.FATES.items()
        if fate.now
        and old_names.is_added(name)
        and not (has_contrib and old_names.is_of_contrib(name))
    }
    private = [name for name, public in old_names.PUBLIC_NAMES.items() if public in names]
    homes = [name.rpartition(".")[0] for name in (*names, *private)]
    if not has_contrib:
        homes += [each for each in moved_names.MODULES if old_names.whole_module(each)]
        homes += moved_names.DEFINED_IN
        sys.meta_path.insert(0, _MovedModules)
        _removals.append(functools.partial(sys.meta_path.remove, _MovedModules))
    roots = [(tf, "tensorflow")]
    roots += [(each, "tensorflow.compat.v1") for each in versions.modules_v1()]
    modules = {home: _modules_called(home, roots) for home in dict.fromkeys(homes)}  # each once
    for name, now in names.items():
        home, _, last = name.rpartition(".")
        if any(last not in vars(versions.plain_module(each)) for each, _ in modules[home]):
            _names[name] = now
            for module, path in modules[home]:
                _let_answer(module, path)


def _put_removed_modules() -> None:
    for removed in versions.removed_modules():
        home, name, stand_in = removed.home, removed.name, removed.stand_in
        full_name = stand_in.__name__
        _register(removed.path, home)
        _register(full_name, stand_in)
        # TensorFlow may have the module, but this module does not work: replace it.
        if full_name not in _stand_ins and hasattr(home, name):
            _removals.append(functools.partial(setattr, home, name, getattr(home, name)))
            setattr(home, name, stand_in)
        else:
            _stand_ins.setdefault(full_name, stand_in)
            _removals.append(functools.partial(_stand_ins.pop, full_name, None))
            _let_answer(home, removed.path)
        _names[full_name.replace("tensorflow", "tf", 1)] = removed.origin


def _modules_called(home: str, roots: List[_Place]) -> List[_Place]:
    """Returns the modules of an old name such as "tf.contrib.opt", and creates missing modules.

    The result has a `_Place` for each root: for `tf`, and for each copy of `tf.compat.v1`. Existing
    modules are registered in sys.modules. Otherwise `import` would load a second copy.
    """
    places = roots
    parts = home.split(".")[1:]
    if parts[:1] == ["python"]:  # private modules, which are not attributes of `tf`
        places = [(importlib.import_module("tensorflow.python"), "tensorflow.python")]
        del parts[0]
    for module, path in places:
        _register(path, module)
    for part in parts:
        places = [(_child(module, path, part), f"{path}.{part}") for module, path in places]
    return places


def _child(module: types.ModuleType, path: str, name: str) -> types.ModuleType:
    """Returns a submodule, and creates it if it is missing."""
    full_name = f"{path}.{name}"
    child = _stand_ins.get(full_name)
    if child is None and path not in _stand_ins:  # a created module has only created submodules
        child = getattr(module, name, None)
        if child is None and full_name.startswith("tensorflow.python."):
            with contextlib.suppress(ImportError):
                child = importlib.import_module(full_name)  # TensorFlow has not imported it yet
    if child is None:
        # `tf` and `tf.compat.v1` share created modules.
        child = _new_module(full_name.replace(".compat.v1.", "."))
        _stand_ins[full_name] = child
    if full_name in _stand_ins:
        _let_answer(module, path)
    _register(full_name, child)
    return child


def _new_module(name: str) -> types.ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    module = types.ModuleType(name, "Old names, put back by legacy_opt.compat.patch_tensorflow.")
    _stand_ins[name] = module
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    module.__package__ = name
    module.__path__ = []
    module.__dir__ = functools.partial(_names_of, module)
    module.__getattr__ = functools.partial(found, name)
    return module


def _register(name: str, module: types.ModuleType) -> None:
    if name not in sys.modules:
        sys.modules[name] = module
        _removals.append(functools.partial(sys.modules.pop, name, None))


def _let_answer(module: types.ModuleType, path: str) -> None:
    """Lets a module of TensorFlow answer to the old names that it lacks, until the patch ends.

    `dir` does not list these names, because programs walk through `dir(tf.train)` and expect only
    TensorFlow's classes. Modules that a patch has created answer already, and are left unchanged.
    """
    module = versions.plain_module(module)
    if path in _stand_ins or id(module) in _answering:
        return

    def find(name: str, as_before: module_attributes.Lookup) -> Any:
        full_name = f"{path}.{name}"
        is_old = full_name in _stand_ins or old_names.public_name(full_name) in _names
        return found(path, name) if is_old else as_before(name)

    _answering.add(id(module))
    _removals.append(module_attributes.intercept(module, find))


def found(module: str, name: str) -> Any:
    """Returns the object of an old name in a module, or raises an AttributeError with advice."""
    full_name = f"{module}.{name}"
    if name == "__all__":  # `from … import *` asks for it
        return [each for each in _names_of(_stand_ins[module]) if not each.startswith("_")]
    public = old_names.public_name(full_name)
    is_moved = public in old_names.MOVED  # a row for an object precedes a module with its name
    if full_name in _stand_ins and not is_moved:
        return _stand_ins[full_name]
    is_private = name.startswith("_") and not is_moved
    entry = None if is_private else old_names.find(full_name)
    if entry is not None and entry.name == public:  # not the entry of a parent module
        value = _value(entry.fate.now)
        if value is not None:
            return parameters.as_in_1(public, value, old_names.PARAMETERS.get(public))
    advice = f" ({old_names.advice(full_name, is_missing=True)})" if entry else ""
    raise AttributeError(f"module {module!r} has no attribute {name!r}{advice}")


# New names in these modules are looked up in Keras 2: that of TensorFlow, or tf_keras.
_OF_KERAS: Dict[str, Callable[[], types.ModuleType]] = {
    moved_names.KERAS: versions.keras_1,
    moved_names.KERAS_OPTIMIZERS: versions.keras_optimizers_1,
}


def _value(name: Optional[str]) -> Any:
    """Returns the object of a new name for old code, or None if it is not installed."""
    if name is None:
        return None
    if name in _AS_ORIGINALLY:
        return _AS_ORIGINALLY[name]
    if name.startswith("tensorflow_estimator."):
        versions.estimator()  # makes the package work with this TensorFlow
    value = None
    # Import the root. Then take attributes, and import submodules that are not attributes yet.
    for full_name in itertools.accumulate(name.split("."), "{}.{}".format):
        if full_name in _OF_KERAS:
            try:
                value = _OF_KERAS[full_name]()
                continue
            except ImportError:
                return None
        try:
            value = getattr(value, full_name.rpartition(".")[2])
        except AttributeError:  # for the root, always: `value` is None
            try:
                value = importlib.import_module(re.sub(r"^tf\b", "tensorflow", full_name))
            except ImportError:
                return None
    return value


def _names_of(module: types.ModuleType) -> List[str]:
    """Returns the names of a module of tf.contrib, for `dir` and `from … import *`."""
    full_names = [name for name in list(_stand_ins) if name.rpartition(".")[0] == module.__name__]
    full_names += old_names.names_in(module.__name__)
    names = {name.rpartition(".")[2] for name in full_names}
    home = _value(old_names.whole_module(module.__name__))
    if home is not None:
        names.update(
            name
            for name, value in list(vars(home).items())  # a thread may import meanwhile
            if not (name.startswith("_") or isinstance(value, types.ModuleType))
        )
    return sorted({*vars(module), *(name for name in names if _has(module, name))})


def _has(module: types.ModuleType, name: str) -> bool:
    try:
        return hasattr(module, name)
    except ImportError:  # the name is there, but needs a package that is missing
        return True


_PARENTS = r"tensorflow\.(compat\.v1\.)?(contrib|examples|python\.estimator)\b"


class _MovedModules(importlib.abc.Loader):
    """Finds and loads modules that tf.contrib had, and that live elsewhere now."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """Returns the `ModuleSpec` of a module of tf.contrib; None for other modules."""
        parent, _, last = name.rpartition(".")
        if not re.match(_PARENTS, parent):
            return None
        home = sys.modules[parent]
        module = getattr(home, last, None)
        if module is None and home.__name__ != parent:  # the parent lives elsewhere
            with contextlib.suppress(ImportError):
                module = importlib.import_module(f"{home.__name__}.{last}")
        return ModuleSpec(name, cls(module)) if isinstance(module, types.ModuleType) else None

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> None:
        """Lets Python create an empty module, which `exec_module` replaces."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Puts the module that lives elsewhere in the place of the empty one."""
        sys.modules[module.__name__] = self._module
        _removals.append(functools.partial(sys.modules.pop, module.__name__, None))
