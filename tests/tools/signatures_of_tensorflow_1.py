"""Compares the arguments and defaults of forwarded names with those of TensorFlow 1.15.

A name is forwarded if a row of `compat/old_programs/old_names` answers it with an object elsewhere.
A class stands for its constructor and its public methods. From the checkout's root, with tf_slim on
PYTHONPATH for its names, the first command records 1.15's signatures, and the second writes the
verdicts on another lane into a table::

    .nox/1.15/bin/python -m tests.tools.signatures_of_tensorflow_1 record
    .nox/2.21/bin/python -m tests.tools.signatures_of_tensorflow_1 table

The verdicts are

* equal; not in the table, except for their number,
* added: there are new arguments, which have defaults, after the old ones,
* error: a call that uses the rest is an error, as Python or
  `compat/old_programs/old_names/parameters.py` says,
* refused: there is no such name, which `legacy-opt run` and `audit` say before the run,
* adapted: the rest has the same meaning all the same, for the reason in `REASONS`,
* another meaning: none of these, which a test does not let pass.
"""

import ast
import contextlib
import enum
import importlib
import inspect
import re
import sys
import types
from collections import Counter

import numpy as np
import tensorflow as tf

from legacy_opt import compat
from legacy_opt.compat.old_programs import old_names
from legacy_opt.compat.old_programs.old_names import moved_names
from tests.support.paths import ROOT

_RECORDED = ROOT / "tests" / "data" / "signatures_tf115.txt"
_TABLE = ROOT / "tests" / "data" / "forwarded_names.txt"
LANE = ".".join(tf.__version__.split(".")[:2])
_NO_NAMES = ("absolute_import", "division", "print_function", "python", "api", "tf_export")
_NO_NAMES += ("HAS_PANDAS", "HAS_SKLEARN", "DESCRIPTOR")  # what is installed; protocol buffers
_NO_NAMES += ("LazyLoader", "Metric", "contrib_add_arg_scope")  # imported for the module's own use
_P = inspect.Parameter
_DATA, _KERAS = r"tf\.contrib\.data\.", r"tf\.contrib\.keras\."
# Regular expressions of differences, after the name, and the reason for which a call has the old
# meaning, or is an error.
REASONS = (
    (r"tf\.contrib\.opt\..*\.(minimize|compute_gradients): .*", "All arguments are passed on."),
    (r"tf\.contrib\.eager\.function: .*_shapes=False is None", "None means False."),
    (r"tf\.contrib\.(layers|slim)\..*: combiner=None is 'mean'", "None means 'mean'."),
    (r".*\.set_virtual_device_configuration: (no )?virtual_dev.*", "Only a name is new."),
    (r".*\.nest\.is_sequence(_or_composite)?: .*", "Only a name is new."),
    (r"tf\.contrib\.rnn\.RNNCell\.build: _ is input_shape|.*: no _", "Only a name is new."),
    (r"tf\.contrib\.rnn\.LSTMBlockFusedCell\.build: .*", "Only a name is new."),
    (r"tf\.python\.estimator\.estimator_lib\.DNNL\w+: .*", "TensorFlow's own, up to 2.15."),
    (r".*\.BoostedTrees\w+: \w+=object\(\) is [12]", "The object meant this number."),
    (r".*\.EventsWriter[.:].*", "The same methods, whose signature Python cannot read."),
    (r".*\.projector\.visualize_embeddings: summary_writer.*", "It takes a FileWriter, too."),
    (r".*\.projector\..*: = Generated.*", "The same methods of a protocol buffer."),
    (r".*\.read_data_sets: source_url=.*", "It downloads nothing, and says so."),
    (_DATA + r".*: (cycle|block)_length=-?1 is None", "None means the old default."),
    (_DATA + r".*: reshuffle_each_iteration=None is True", "None means True."),
    (_DATA + r".*\.zip: datasets is in \*args", "It takes a tuple of datasets, too."),
    (_DATA + r".*: reader=TFRecordDatasetV1 is None", "None means TFRecordDataset."),
    (r".*_ops\.\w+: name is multiply_linear_by_lr.*", "A name is no boolean: an error."),
    (r"tf\.contrib\.tpu\.python\.ops\..*", "Of other types: an error, and on TPUs only."),
    (r".*\.scale_gradient: inputs is before .*", "1.15's decorator hides these arguments."),
    (_KERAS + r"applications\..*: \w+ is before .*", "1.15's decorator hides these arguments."),
    (_KERAS + r"callbacks\.TensorBoard: log_dir=.*", "It is the same folder."),
    (_KERAS + r"layers\.Input\w*: \w+=False is None", "None means False."),
    (_KERAS + r"layers\.(GRU|LSTM): no implementation", "It is in **kwargs, with this default."),
    (_KERAS + r"regularizers\.l(.): (l is l\1|no l)", "l is in **kwargs."),
    (_KERAS + r"models\.save_model: no (include_optimizer|signatures)", "It is in **kwargs."),
    (_KERAS + r"utils\.GeneratorEnqueuer: (no sequence|.* is generator)", "Only a name is new."),
    (
        _KERAS + r"(layers\.Layer|models\.Model)\.\w+: .*",
        "This method of TensorFlow's own tf.keras has changed.",
    ),
)


def forwarded():
    """Yields the forwarded names that the installed TensorFlow 1 has, with their objects."""
    for name, fate in old_names.FATES.items():
        value = found(name) if fate.now and name.startswith("tf.") else None
        if isinstance(value, types.ModuleType):
            yield from _in_module(name, value)
        elif value is not None:
            yield name, value
    for module in moved_names.MODULES:
        yield from _in_module(module, found(module))


def _in_module(path, module):
    for name in dir(module):
        full_name = f"{path}.{name}"
        public = old_names.public_name(full_name)
        is_forwarded = old_names.new_name(public, old_names.find(public)) is not None
        is_row = full_name in old_names.FATES or full_name in moved_names.MODULES
        if is_row or not (is_forwarded and is_name(name)):
            continue
        value = getattr(module, name)
        if not str(getattr(value, "__module__", "tensorflow")).startswith("tensorflow"):
            continue  # a module of TensorFlow imports it
        if not isinstance(value, types.ModuleType):
            yield full_name, value
        elif value.__name__.startswith(module.__name__ + "."):
            yield from _in_module(full_name, value)


def is_name(name):
    return not (name.startswith("_") or name in _NO_NAMES or name.endswith("_eager_fallback"))


def found(name):
    """Returns the object of a dotted name of TensorFlow 1; None if it does not exist."""
    if name.startswith("tf.train."):
        name = name.replace("tf", "tf.compat.v1", 1)
    parts = ["tensorflow" if part == "tf" else part for part in name.split(".")]
    value = None
    for end, part in enumerate(parts, 1):
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError):
            try:
                value = importlib.import_module(".".join(parts[:end]))
            except ImportError:
                return None
    return value


def signature_of(value):
    """Returns the `inspect.Signature` of a function or constructor; None for other objects."""
    if isinstance(value, type):
        init = value.__init__ is not object.__init__
        return method_signature(value, "__init__" if init else "__new__")
    with contextlib.suppress(TypeError, ValueError):
        return inspect.signature(value) if callable(value) else None


def method_signature(cls, name):
    """Returns the `inspect.Signature` of a method without its first argument; None if unknown.

    Methods that only pass on `*args, **kwargs` have the signature of the next class's method.
    """
    signature = None
    for base in cls.__mro__:
        method = vars(base).get(name)
        if method is None or base is object:
            continue
        if name != "__new__" and isinstance(method, (staticmethod, classmethod)):
            method = getattr(base, name)
        else:  # `__new__` may be a static method, or a plain function
            method = types.MethodType(getattr(base, name), cls)
        signature = signature_of(method)
        if signature is None or not _is_opaque(signature):
            return signature
    return inspect.Signature() if signature is None and name == "__new__" else signature


def _is_opaque(signature):
    kinds = {each.kind for each in signature.parameters.values()}
    return _P.VAR_POSITIONAL in kinds and kinds <= {_P.VAR_POSITIONAL, _P.VAR_KEYWORD}


def methods_of(cls):
    """Yields the names of the public methods of a class that Python code defines."""
    for name in dir(cls):
        method = None if name.startswith("_") else getattr(cls, name, None)
        if inspect.isroutine(method) and hasattr(method, "__module__"):
            yield name


def text_of(value):
    """Returns the text by which the value of a default is compared."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (str, bytes)):
        return repr(value)
    if isinstance(value, (int, float, type(None))):
        return re.sub(r"\.0$", "", str(value))
    if type(value) in (tuple, list):
        texts = ", ".join(map(text_of, value))
        return f"({texts})" if isinstance(value, tuple) else f"[{texts}]"
    if isinstance(value, np.generic):
        return text_of(value.item())
    if isinstance(value, tf.DType):
        return value.name
    name = getattr(value, "__name__", None)
    if name is not None:
        return name
    state = {key: each for key, each in getattr(value, "__dict__", {}).items() if _is_plain(each)}
    inner = ", ".join(f"{key.strip('_')}={text_of(each)}" for key, each in sorted(state.items()))
    return f"{type(value).__name__}({inner})"


def _is_plain(value):
    return isinstance(value, (str, bool, int, float, tf.DType, enum.Enum, type(None)))


def described(value, method=""):
    """Returns the text of the signature of an object or of a class's method.

    The annotations are left out. The text of a constant begins with "= ".
    """
    signature = method_signature(value, method) if method else signature_of(value)
    if signature is None:
        return "= " + (text_of(value) if _is_plain(value) else type(value).__name__)
    texts, bare = [], True
    for each in signature.parameters.values():
        if each.kind is _P.KEYWORD_ONLY and bare:
            texts.append("*")
        bare = bare and each.kind not in (_P.KEYWORD_ONLY, _P.VAR_POSITIONAL)
        default = "" if each.default is _P.empty else "=" + text_of(each.default)
        mark = {_P.VAR_POSITIONAL: "*", _P.VAR_KEYWORD: "**"}.get(each.kind, "")
        texts.append(mark + each.name + default)
    return "(" + ", ".join(texts) + ")"


def record():
    """Returns lines for the forwarded names of the installed TensorFlow 1, as pairs of texts.

    The first text is the names of an object, or "." and the name of a method of the object above;
    the second is the signature. A method is only in the lines of the first class that has it.
    """
    names, values = {}, {}
    for name, value in forwarded():
        names.setdefault(id(value), set()).add(name)
        values[id(value)] = value
    lines = []
    classes = [value for value in values.values() if isinstance(value, type)]
    seen = {id(method) for value in classes for method in vars(value).values()}
    for key, value in values.items():
        lines.append((" ".join(sorted(names[key])), described(value)))
        for method in methods_of(value) if isinstance(value, type) else ():
            function = inspect.getattr_static(value, method)
            if method in vars(value) or id(function) not in seen:
                seen.add(id(function))
                lines.append(("." + method, described(value, method)))
    return lines


def recorded():
    """Returns the recorded lines; see `record`."""
    rows = _RECORDED.read_text(encoding="utf-8").splitlines()
    return [re.match(r"(.*?) ?(= .*|\(.*)$", row).groups() for row in rows]


class Arguments:
    """The arguments in the text of a signature.

    Attributes:
      positional: the names of those that have a position.
      defaults: {name: text of the default, or None}, of all.
      rest, options: the names of `*args` and `**kwargs`, or None.
    """

    def __init__(self, text):
        source = f"def f{text}: pass"
        found = ast.parse(source).body[0].args
        self.positional = [each.arg for each in found.args]
        names = self.positional + [each.arg for each in found.kwonlyargs]
        defaults = [None] * (len(found.args) - len(found.defaults))
        defaults += [*found.defaults, *found.kw_defaults]
        self.defaults = {
            name: node and ast.get_source_segment(source, node)
            for name, node in zip(names, defaults)
        }
        self.rest, self.options = (each and each.arg for each in (found.vararg, found.kwarg))


def differences(old, new):
    """Compares two texts of `described`.

    Returns:
      (meanings, errors, additions): lists of texts, of what a call may get in another meaning, of
      what is an error of a call, and of what is new.
    """
    if not (old.startswith("(") and new.startswith("(")):
        return ([] if old == new else [f"{old} is {new}"]), [], []
    old, new = Arguments(old), Arguments(new)
    meanings, errors = _differences_of_positions(old, new)
    for name, default in old.defaults.items():
        now = new.defaults.get(name)
        if name not in new.defaults:
            (meanings if new.options else errors).append(f"no {name}")
        elif default is not None and now != default:
            (errors if now is None else meanings).append(f"{name}={default} is {now or 'needed'}")
    errors += [f"no *{old.rest}"] * bool(old.rest and not new.rest)
    errors += [f"no **{old.options}"] * bool(old.options and not new.options)
    more = [name for name in new.defaults if name not in old.defaults]
    errors += [f"{name} is needed" for name in more if new.defaults[name] is None]
    return meanings, errors, [f"new {name}" for name in more if new.defaults[name] is not None]


def _differences_of_positions(old, new):
    """Returns (meanings, errors) of the first argument with another position; see `differences`."""
    for name, other in zip(old.positional, new.positional):
        if name != other:
            defaults = [each or "needed" for each in (old.defaults[name], new.defaults[other])]
            change = f" ({' is '.join(defaults)})" if defaults[0] != defaults[1] else ""
            return [f"{name} is {other}{change}"], []
    for name in old.positional[len(new.positional) :]:
        if new.rest:
            return [f"{name} is in *{new.rest}"], []
        if name in new.defaults:
            return [], [f"{name} by name only"]
    if old.rest and len(new.positional) > len(old.positional):
        return [f"{new.positional[len(old.positional)]} is before *{old.rest}"], []
    return [], []


def verdicts():
    """Yields (name, verdict, text of the differences, old text, new text) for each name."""
    values = {}
    with compat.patch_tensorflow():
        for names, old in recorded():
            method = names if names.startswith(".") else ""
            if not method:
                values = {name: found(name) for name in names.split() if _is_here(name)}
            for name, value in values.items():
                if value is None or not hasattr(value, method[1:] or "__class__"):
                    why = old_names.advice(name, is_missing=True) if value is None else ""
                    yield name + method, "refused", why or "There is no such name.", old, ""
                else:
                    new = described(value, method[1:])
                    yield (name + method, *verdict(name + method, old, new), old, new)


def _is_here(name):
    """Whether an installed package has the name, as far as the table of old names knows."""
    fate = old_names.find(name).fate
    return fate.now is not None and fate.is_here


def verdict(name, old, new):
    """Returns the verdict on a new signature, and the text of its differences."""
    meanings, errors, additions = differences(old, new)
    text = ", ".join(meanings + errors + additions)
    reasons = {
        meaning: reason
        for meaning in meanings
        for pattern, reason in REASONS
        if re.fullmatch(pattern, f"{name}: {meaning}")
    }
    if meanings and set(meanings) == set(reasons):
        return "adapted", f"{text}. {' '.join(sorted(set(reasons.values())))}"
    kinds = ["another meaning"] * bool(meanings) + ["error"] * bool(errors)
    return (kinds + ["added"] * bool(additions) + ["equal"])[0], text


def table():
    """Returns the table: {line without lanes: list of lanes}. Counts are lines, too."""
    lines = _TABLE.read_text(encoding="utf-8").splitlines() if _TABLE.exists() else []
    return {line.rpartition(" | ")[0]: line.rpartition(" | ")[2].split() for line in lines}


def _write_table():
    found = list(verdicts())
    names = {name for name, *_ in found}
    rows = {}
    for line, lanes in table().items():
        words = line.split(" | ")
        is_checked = words[0] == "number" or words[1] in names
        rows[line] = [lane for lane in lanes if not (is_checked and lane == LANE)]
    counts = Counter(verdict for _, verdict, *_ in found)
    new = ["number | " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))]
    new += [f"{each[1]} | {each[0]} | {each[2]}" for each in found if each[1] != "equal"]
    for line in new:
        rows.setdefault(line, []).append(LANE)
    texts = [
        f"{line} | {' '.join(sorted(lanes, key=lambda lane: int(lane.split('.')[1])))}\n"
        for line, lanes in sorted(rows.items())
        if lanes
    ]
    _TABLE.write_text("".join(texts), encoding="utf-8")
    print(new[0])


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        lines = (f"{names}{' ' * text.startswith('=')}{text}\n" for names, text in record())
        _RECORDED.write_text("".join(lines), encoding="utf-8")
    elif sys.argv[1:] == ["table"]:
        _write_table()
    else:
        sys.exit(__doc__)
