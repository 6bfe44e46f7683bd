"""The bridges between TensorFlow 1 optimizers and Keras; imported as `legacy_opt.compat`."""

import importlib
import sys

if __name__ == "compat":  # imported from the checkout's root: be the same module there
    sys.modules[__name__] = importlib.import_module("legacy_opt.compat")

# The public names and the modules they live in, which are imported when a name is first used:
# the doctor has to run where the others cannot be imported.
_HOMES = {
    "CheckpointError": "checkpoint_files",
    "CheckpointMismatch": "checkpoint_report",
    "compare_with_session": "compare",
    "custom_objects": "bridge",
    "diagnose": "doctor",
    "from_plain_keras": "plain_keras",
    "load_v1_checkpoint": "checkpoint",
    "patch_tensorflow": "patching",
    "register_optimizer": "config",
    "save_v1_checkpoint": "checkpoint",
    "to_keras": "bridge",
    "to_plain_keras": "plain_keras",
    "to_v1": "as_v1",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(importlib.import_module("legacy_opt.compat." + _HOMES[name]), name)


def __dir__():
    return sorted(set(globals()) | set(_HOMES))
