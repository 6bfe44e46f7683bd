"""Bridges TensorFlow 1 optimizers and Keras. Import this package as `legacy_opt.compat`."""

import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING as _FOR_TOOLS

if __name__ == "compat":  # `import compat` in a checkout: return the module legacy_opt.compat
    _sys.modules[__name__] = _importlib.import_module("legacy_opt.compat")

if _FOR_TOOLS:
    from . import contrib, estimator
    from .checkpoint_files import CheckpointError
    from .checkpoints.optimizer_v2_checkpoint import load_optimizer_v2, save_optimizer_v2
    from .checkpoints.report import CheckpointMismatch
    from .checkpoints.v1_checkpoint import load_v1_checkpoint, save_v1_checkpoint
    from .diagnosis import diagnose
    from .embedding_rows import read_rows_only
    from .keras_bridge.bridge import custom_objects, to_keras
    from .keras_bridge.session_comparison import compare_with_session
    from .keras_in_graphs.optimizer import to_v1
    from .old_names.patching import patch_tensorflow
    from .plain_keras.translation import from_plain_keras, to_plain_keras
    from .v1_optimizers.serialization import register_optimizer

_MODULES = ("contrib", "estimator")
# Maps each public name to its module. The module is imported when the name is first used, so that
# `diagnose` works even if another module cannot be imported.
_HOMES = {
    "CheckpointError": "checkpoint_files",
    "CheckpointMismatch": "checkpoints.report",
    "compare_with_session": "keras_bridge.session_comparison",
    "custom_objects": "keras_bridge.bridge",
    "diagnose": "diagnosis",
    "from_plain_keras": "plain_keras.translation",
    "load_optimizer_v2": "checkpoints.optimizer_v2_checkpoint",
    "load_v1_checkpoint": "checkpoints.v1_checkpoint",
    "patch_tensorflow": "old_names.patching",
    "read_rows_only": "embedding_rows",
    "register_optimizer": "v1_optimizers.serialization",
    "save_optimizer_v2": "checkpoints.optimizer_v2_checkpoint",
    "save_v1_checkpoint": "checkpoints.v1_checkpoint",
    "to_keras": "keras_bridge.bridge",
    "to_plain_keras": "plain_keras.translation",
    "to_v1": "keras_in_graphs.optimizer",
}

__all__ = [
    "CheckpointError",
    "CheckpointMismatch",
    "compare_with_session",
    "contrib",
    "custom_objects",
    "diagnose",
    "estimator",
    "from_plain_keras",
    "load_optimizer_v2",
    "load_v1_checkpoint",
    "patch_tensorflow",
    "read_rows_only",
    "register_optimizer",
    "save_optimizer_v2",
    "save_v1_checkpoint",
    "to_keras",
    "to_plain_keras",
    "to_v1",
]


def __getattr__(name):
    if name in _MODULES:
        return _importlib.import_module(f"legacy_opt.compat.{name}")
    if name not in _HOMES:
        nearest_names = _importlib.import_module("legacy_opt.core.nearest_names")
        hint = "" if name.startswith("_") else nearest_names.did_you_mean(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{hint}")
    return getattr(_importlib.import_module(f"legacy_opt.compat.{_HOMES[name]}"), name)


def __dir__():
    return sorted({*globals(), *_HOMES, *_MODULES})
