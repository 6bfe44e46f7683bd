"""Writes the public API as text: names, signatures, and the first lines of docstrings.

    python -m tests.tools.public_api          writes docs/public_api.txt

tests/project/test_public_api.py compares docs/public_api.txt with the code. So each change of the
API appears in a diff of docs/public_api.txt.
"""

import inspect

import legacy_opt
from legacy_opt import compat, native, proofs, recorded, rule_writing
from legacy_opt.compat import contrib
from legacy_opt.compat.contrib import rnn_linear
from legacy_opt.compat.in_keras.plain_keras.measurement import Measurement
from legacy_opt.compat.in_keras.plain_keras.report import Moved, Translation, TranslationReport
from legacy_opt.compat.in_keras.session_comparison import Comparison
from legacy_opt.compat.old_programs.old_names.patching import Patch
from legacy_opt.compat.state.checkpoints.report import Leftover, Report, Transfer
from legacy_opt.recorded import formulas, state_files
from legacy_opt.recorded import native as native_target
from legacy_opt.recorded import numpy as numpy_target
from legacy_opt.recorded.neighbours import grading
from tests.support.paths import ROOT
from tests.tools import optional_modules

PAGE = ROOT / "docs" / "public_api.txt"
MODULES = (
    legacy_opt,
    compat,
    native,
    rule_writing,
    contrib,
    contrib.crf,
    contrib.distribute,
    contrib.framework,
    contrib.layers,
    contrib.learn,
    contrib.learn.datasets,
    contrib.learn.datasets.mnist,
    contrib.learn.preprocessing,
    contrib.legacy_seq2seq,
    contrib.metrics,
    contrib.rnn,
    rnn_linear,
    contrib.seq2seq,
    contrib.training,
    recorded,
    proofs,
    formulas,
    numpy_target,
    native_target,
    state_files,
)
# Modules that need a library besides TensorFlow.
OPTIONAL = [
    f"legacy_opt.recorded.{name}"
    for name in (
        "torch",
        "torch_own",
        "torch_state",
        "jax",
        "jax_state",
        "optax",
        "optax_own",
        "keras",
    )
]
# Classes that public functions return, and the classes of their attributes.
RESULTS = (
    Comparison,
    Report,
    Transfer,
    Leftover,
    Patch,
    Translation,
    TranslationReport,
    Moved,
    Measurement,
    grading.Grade,
)


def public_names():
    """Returns a dict from each public module's name to a dict of its names and their values."""
    found = {
        module.__name__: {name: getattr(module, name) for name in sorted(module.__all__)}
        for module in MODULES
    }
    return {**found, **{module: optional_modules.public_names(module) for module in OPTIONAL}}


def text():
    """Returns the content of docs/public_api.txt."""
    parts = []
    for module, names in public_names().items():
        parts += [heading(module), *(entry(name, value) for name, value in names.items())]
    parts += [heading("Results")] + [entry(cls.__name__, cls) for cls in RESULTS]
    return "\n".join(parts)


def heading(title):
    """Returns an underlined heading."""
    return f"{title}\n{'=' * len(title)}\n"


def entry(name, value):
    """Describes a public name: a function, a class with its members, or a constant."""
    if inspect.isclass(value):
        parents = [each.__name__ for each in value.__mro__[1:] if is_public(each)]
        arguments = "" if issubclass(value, Exception) else signature(value)
        lines = ["class " + name + arguments, *first_line(value)]
        lines += ["    is a " + each for each in parents]
        lines += [line for each in sorted(members(value)) for line in member(value, each)]
    elif callable(value):
        lines = [f"def {name}{signature(value)}", *first_line(value)]
    else:
        about = first_line(value) if inspect.ismodule(value) else []
        lines = [f"{name}: {type(value).__name__}", *about]
    return "\n".join(lines) + "\n"


def is_public(cls):
    """Returns whether a class is public in `legacy_opt` itself, not only in `legacy_opt.compat`."""
    return cls.__module__.startswith("legacy_opt") and cls.__name__ in legacy_opt.__all__


def members(cls):
    """Returns the names of a class's public members.

    Leaves out members that the class inherits unchanged from a public class of legacy_opt, and
    members that only other packages, such as TensorFlow, define.
    """
    ours = [each for each in cls.__mro__ if each.__module__.startswith("legacy_opt")]
    names = {name for each in ours for name in vars(each) if not name.startswith("_")}
    parents = list(filter(is_public, ours[1:]))
    return {name for name in names if not is_inherited(cls, name, parents)}


def is_inherited(cls, name, parents):
    """Returns whether a class has a member unchanged from one of its parent classes."""
    value = inspect.getattr_static(cls, name)
    return any(inspect.getattr_static(each, name, None) is value for each in parents)


def member(cls, name):
    """Describes a member of a class: a method, a property, a field or a constant."""
    value = inspect.getattr_static(cls, name)
    if isinstance(value, (classmethod, staticmethod)):
        return [f"    def {name}{signature(getattr(cls, name))}"]
    if inspect.isfunction(value):
        return [f"    def {name}{signature(value, 1)}"]
    return ["    " + name]


def first_line(value):
    """Returns a list with the docstring's first line, or an empty list without a docstring."""
    lines = (value.__doc__ or "").strip().splitlines()[:1]
    return ["    " + line for line in lines]


def signature(function, skipped=0):
    """Returns a function's parameters after the first `skipped` ones, and its return annotation."""
    if inspect.isclass(function) and inspect.isfunction(function.__init__):
        # Metaclasses and `__new__` of TensorFlow and Keras have other parameters.
        found = inspect.signature(function.__init__)
        skipped = 1  # self
    else:
        found = inspect.signature(function)
    parameters = list(found.parameters.values())[skipped:]
    words, is_starred = [], False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not is_starred:
            words.append("*")
        is_starred = is_starred or each.kind in (each.VAR_POSITIONAL, each.KEYWORD_ONLY)
        words.append(parameter(each))
    returns = found.return_annotation
    # The return annotation of constructors is None, and is omitted.
    is_annotated = returns is not found.empty and not inspect.isclass(function)
    ending = " -> " + annotation(returns) if is_annotated else ""
    return f"({', '.join(words)}){ending}"


def parameter(each):
    """Returns a parameter as source code."""
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}
    text = stars.get(each.kind, "") + each.name
    if each.annotation is not each.empty:
        text += ": " + annotation(each.annotation)
    if each.default is not each.empty:
        shown = getattr(each.default, "__name__", None) or repr(each.default)
        text += (" = " if ":" in text else "=") + shown
    return text


def annotation(value):
    """Returns an annotation as source code."""
    value = getattr(value, "__forward_arg__", value)  # a ForwardRef in NamedTuples
    return value if isinstance(value, str) else value.__name__


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
