"""Bridges TensorFlow 1 optimizers and Keras. Import this package as `legacy_opt.compat`."""

import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING as _FOR_TOOLS

if __name__ == "compat":  # `import compat` in a checkout: return the module legacy_opt.compat
    _sys.modules[__name__] = _importlib.import_module("legacy_opt.compat")

if _FOR_TOOLS:
    from . import contrib, estimator
    from .cli.diagnosis import diagnose
    from .in_keras.bridge import custom_objects, to_keras
    from .in_keras.embedding_rows import read_rows_only
    from .in_keras.keras_in_graphs.optimizer import to_v1
    from .in_keras.plain_keras.translation import from_plain_keras, to_plain_keras
    from .in_keras.session_comparison import compare_with_session
    from .in_keras.v1_optimizers.serialization import register_optimizer
    from .in_keras.weight_averages import EvaluateAverages, averages
    from .old_programs.old_names.patching import patch_tensorflow
    from .state.checkpoint_files.errors import CheckpointError
    from .state.checkpoints.optimizer_v2_checkpoint import load_optimizer_v2, save_optimizer_v2
    from .state.checkpoints.report import CheckpointMismatch
    from .state.checkpoints.v1_checkpoint import load_v1_checkpoint, save_v1_checkpoint

_MODULES = ("contrib", "estimator")
# Maps each public name to its module. The module is imported when the name is first used, so that
# `diagnose` works even if another module cannot be imported.
_HOMES = {
    "CheckpointError": "state.checkpoint_files.errors",
    "CheckpointMismatch": "state.checkpoints.report",
    "EvaluateAverages": "in_keras.weight_averages",
    "averages": "in_keras.weight_averages",
    "compare_with_session": "in_keras.session_comparison",
    "custom_objects": "in_keras.bridge",
    "diagnose": "cli.diagnosis",
    "from_plain_keras": "in_keras.plain_keras.translation",
    "load_optimizer_v2": "state.checkpoints.optimizer_v2_checkpoint",
    "load_v1_checkpoint": "state.checkpoints.v1_checkpoint",
    "patch_tensorflow": "old_programs.old_names.patching",
    "read_rows_only": "in_keras.embedding_rows",
    "register_optimizer": "in_keras.v1_optimizers.serialization",
    "save_optimizer_v2": "state.checkpoints.optimizer_v2_checkpoint",
    "save_v1_checkpoint": "state.checkpoints.v1_checkpoint",
    "to_keras": "in_keras.bridge",
    "to_plain_keras": "in_keras.plain_keras.translation",
    "to_v1": "in_keras.keras_in_graphs.optimizer",
}

__all__ = [
    "CheckpointError",
    "CheckpointMismatch",
    "EvaluateAverages",
    "averages",
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


def __getattr__(name: str):
    if name in _MODULES:
        return _importlib.import_module(f"legacy_opt.compat.{name}")
    if name not in _HOMES:
        nearest_names = _importlib.import_module("legacy_opt.core.nearest_names")
        hint = "" if name.startswith("_") else nearest_names.did_you_mean(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{hint}")
    return getattr(_importlib.import_module(f"legacy_opt.compat.{_HOMES[name]}"), name)


def __dir__():
    return sorted({*globals(), *_HOMES, *_MODULES})
