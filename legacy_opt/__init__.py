"""TensorFlow 1's optimizers on every TensorFlow from 1.15 to the newest 2.x.

The public names are listed in `legacy_opt.public`.
"""

import importlib
import os
import sys

__version__ = "0.1.0"

# A checkout keeps compat beside this package, a wheel inside it.
if not os.path.isdir(os.path.join(__path__[0], "compat")):
    __path__.append(os.path.dirname(__path__[0]))


def _may_be_command():
    """Whether `legacy-opt` or `python -m` is starting: the doctor runs without TensorFlow too."""
    program = os.path.basename((getattr(sys, "argv", None) or [""])[0])
    return program == "-m" or os.path.splitext(program)[0] == "legacy-opt"


def __getattr__(name):
    """Fetches what is imported late: compat always, the public names where a command starts."""
    if name == "compat":
        return importlib.import_module("legacy_opt.compat")
    if name == "__all__" or not name.startswith("_"):
        public = importlib.import_module("legacy_opt.public")
        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
    raise AttributeError("module 'legacy_opt' has no attribute %r" % name)


if not _may_be_command():
    from legacy_opt.public import *  # noqa: F403
    from legacy_opt.public import __all__  # noqa: F401
