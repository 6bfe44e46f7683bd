"""TensorFlow 1's optimizers on every TensorFlow from 1.15 to the newest 2.x.

`import legacy_opt` alone does not import TensorFlow. The first use of a public or unknown name,
and `dir(legacy_opt)`, import `legacy_opt.public`, which lists the public names.
"""

import importlib as _importlib
import importlib.util as _importlib_util
import os as _os
from typing import TYPE_CHECKING as _FOR_TOOLS

__version__ = "0.1.0"

if _FOR_TOOLS:
    from legacy_opt import compat  # noqa: F401
    from legacy_opt.public import *  # noqa: F403


_here = _os.path.dirname(__file__)
if not _os.path.isdir(_os.path.join(_here, "compat")) and _os.path.isdir(f"{_here}/../compat"):
    from legacy_opt import _checkout

    _checkout.find_compat()


def __getattr__(name: str):
    if name == "__all__" or not name.startswith("_"):
        # Submodules are tried before public names, because `public` itself imports submodules, at a
        # time when it has no `__all__` yet. Names with dots are skipped, because find_spec would
        # import the parent module.
        if name.isidentifier() and _importlib_util.find_spec(f"legacy_opt.{name}") is not None:
            return _importlib.import_module(f"legacy_opt.{name}")
        if name in _importlib.import_module("legacy_opt.compat").__all__:  # imports no TensorFlow
            raise AttributeError(
                f"legacy_opt has no attribute {name!r}: it is legacy_opt.compat.{name}"
            )
        try:
            public = _importlib.import_module("legacy_opt.public")
        except ImportError:
            # Without TensorFlow, only a public name is an ImportError. Libraries such as pickle ask
            # each module for other names, and expect an AttributeError.
            if _is_public(name):
                raise
            raise AttributeError(f"module 'legacy_opt' has no attribute {name!r}") from None
        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
        raise AttributeError(_missing(name, public.__all__))
    raise AttributeError(f"module 'legacy_opt' has no attribute {name!r}")


def _is_public(name: str) -> bool:
    """Whether a name is in the texts of the modules, whose import would import TensorFlow."""
    import pathlib
    import re

    paths = [pathlib.Path(_here, each) for each in ("public.py", "optimizers/catalogue.py")]
    text = "".join(each.read_text(encoding="utf-8") for each in paths)
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def __dir__() -> list:
    try:
        names = _importlib.import_module("legacy_opt.public").__all__
    except ImportError:  # there is no TensorFlow
        names = []
    return sorted({*globals(), "compat", *names})


def _missing(name: str, public_names: list) -> str:
    """Returns the error message for an unknown name; the message may suggest another name."""
    import difflib

    import tensorflow as tf

    text = f"module 'legacy_opt' has no attribute {name!r}"
    ending = "Optimizer"
    stem = name[: -len(ending)] if name.endswith(ending) else name
    stems = {each[: -len(ending)]: each for each in public_names if each.endswith(ending)}
    similar = [stems[each] for each in difflib.get_close_matches(stem, stems, n=1)]
    similar = similar or difflib.get_close_matches(name, public_names, n=1, cutoff=0.8)
    if stem not in stems and hasattr(tf.compat.v1.train, stem + ending):
        text += f"; TensorFlow has tf.compat.v1.train.{stem + ending}"
    elif similar:
        text += f"; did you mean {similar[0]!r}?"
    return text + " (`legacy-opt docs from_to` lists the import for each optimizer.)"
