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
        raise AttributeError(_missing(name, public.__all__))
    raise AttributeError("module 'legacy_opt' has no attribute %r" % name)


def _missing(name, known):
    """Says that a name is not here, and what is meant or where it is."""
    import difflib

    import tensorflow as tf

    text = "module 'legacy_opt' has no attribute %r" % name
    ending = "Optimizer"
    stem = name[: -len(ending)] if name.endswith(ending) else name
    stems = {each[: -len(ending)]: each for each in known if each.endswith(ending)}
    close = [stems[each] for each in difflib.get_close_matches(stem, stems, n=1)]
    close = close or difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    if stem not in stems and hasattr(tf.compat.v1.train, stem + ending):
        text += "; TensorFlow has tf.compat.v1.train.%s" % (stem + ending)
    elif close:
        text += "; did you mean %r?" % close[0]
    return text + " (docs/from_to.md tells what to import for which optimizer.)"


if not _may_be_command():
    from legacy_opt.public import *  # noqa: F403
    from legacy_opt.public import __all__  # noqa: F401
