"""The table from old names of optimizers and helpers in TF1 code to their replacements.

`compat.patch_tensorflow`, `legacy-opt run` and `legacy-opt audit` use this table. A test checks
that `legacy-opt docs from_to` agrees with it. `table.py` reads the rows from text files:
`optimizers.txt` (optimizers and helpers), `moved_names.txt` (other names), `modules.txt` (whole
modules), `parameters.txt` (names with other parameters now), `private_names.txt` and
`private_modules.txt` (where TensorFlow 1 defined names), and `libraries.txt` (names of NumPy and
others). Old names of TensorFlow begin with `tf`. `known_names.txt` has the names that 1.15 had in
modules that moved.

In this package, only `patching.py` imports TensorFlow.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import re
from typing import Dict, Iterable, List, NamedTuple, Optional

from . import libraries, moved_names, parameters, table

# Each line has a module, and its names that 1.15 had in this module, or in the one it replaces.
KNOWN_NAMES_FILE = table.FOLDER / "known_names.txt"
OURS, TENSORFLOWS, NOBODYS = "ours", "TensorFlow's", "nobody's"


class Fate(NamedTuple):
    """The replacement of an old name."""

    # The new name, such as "legacy_opt.X", "tf.compat.v1.….X" or "tf_slim.X", or an expression with
    # such names; None if there is no replacement.
    now: Optional[str]
    advice: str  # what to do if there is no replacement, else what to watch out for; may be ""

    @property
    def kind(self) -> str:
        """OURS, TENSORFLOWS (also for packages such as tf_slim), or NOBODYS if `now` is None."""
        if self.now is None:
            return NOBODYS
        return OURS if self.now.startswith("legacy_opt.") else TENSORFLOWS

    @property
    def package(self) -> str:
        """The package that has the replacement: "legacy_opt", "tf", "tf_slim" or "tensorboard"."""
        return (self.now or "").partition(".")[0]

    @property
    def is_here(self) -> bool:
        """Whether there is a replacement, and its package is installed."""
        return self.package in ("tf", "legacy_opt") or is_installed(self.package)


def is_installed(package: str) -> bool:
    """Whether a package is installed, that is, has metadata beside it.

    A folder beside the user's script has none. It must not be imported before the script runs.
    """
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or not spec.origin:
        return False
    folder = glob.escape(os.path.dirname(os.path.dirname(spec.origin)))
    return bool(glob.glob(os.path.join(folder, f"{package}-*.dist-info")))


class Found(NamedTuple):
    """The table entry that `find` returns."""

    # The name that was looked up; or, if only this has an entry, its parent: a removed module, or
    # an object whose attribute was looked up.
    name: str
    fate: Fate


def find(name: str) -> Optional[Found]:
    """Looks up an old name such as "tf.contrib.opt.AdamWOptimizer" in the table.

    The name may begin with "tensorflow" or "tf.compat.v1" instead of "tf". Instead of the public
    module, it may contain the private module that defined the object. Returns None if the table has
    neither the name nor one of its parent modules.
    """
    wanted = public_name(name)
    if is_of_library(wanted):
        home, _, last = wanted.rpartition(".")
        fate = LIBRARIES.get(wanted)
        if home in libraries.MODULES and wanted not in libraries.MODULES:
            fate = Fate(f"{libraries.MODULES[home]}.{last}", "")
        return fate and Found(wanted, fate)
    entry = wanted  # then its parent modules
    while entry:
        moved_to = moved_names.MODULES.get(entry)
        has_own_row = entry == wanted and entry in FATES
        if moved_to is not None and not has_own_row:
            now = moved_to + wanted[len(entry) :]
            return Found(wanted, _fate(now) if _is_known(now) else UNKNOWN)
        if entry in NEED_PACKAGES and not _is_known(wanted):
            return Found(wanted, UNKNOWN)
        if entry in FATES:
            return Found(entry, FATES[entry])
        entry = entry.rpartition(".")[0]
    return None


def _is_known(now: str) -> bool:
    """Whether 1.15 had the object of a new name; True if `KNOWN_NAMES` lacks its modules."""
    home, _, last = now.rpartition(".")
    while home:
        if home in KNOWN_NAMES:
            return last in KNOWN_NAMES[home] or last.startswith("_")
        home, _, last = home.rpartition(".")
    return True


def is_of_library(name: str) -> bool:
    """Returns whether a full dotted name is of a library in `libraries.py`, such as NumPy."""
    return name.partition(".")[0] in _ROOTS


@functools.lru_cache(maxsize=None)
def is_removed(name: str) -> bool:
    """Returns whether the `tf.compat.v1` of some TensorFlow 2 lacks a name (see `find`).

    Also true for names of `libraries.py`, and for names of modules that need other packages from
    TensorFlow 2.16 on. Names of tf.contrib and private names count as lacking, even if
    `patch_tensorflow` provides them.
    """
    entry = find(name)
    if entry is None:
        return False
    if is_of_library(name):
        return True
    if not entry.name.startswith("tf."):
        return False
    is_in_contrib = f"{entry.name}.".startswith("tf.contrib.")
    return is_in_contrib or entry.fate.now is None or _is_moved(entry)


def _is_moved(found: Found) -> bool:
    return found.name in MOVED or found.name not in FATES  # a name of a module that moved


def is_put_back(name: str) -> bool:
    """Returns whether `patch_tensorflow` provides an object or module of a removed module."""
    entry = find(name)
    if entry is not None and entry.name == public_name(name) and _is_moved(entry):
        return entry.fate.is_here
    start = public_name(name) + "."
    is_in_removed = start.startswith(("tf.contrib.", "tf.examples.", "tf.pywrap_tensorflow."))
    return is_in_removed and any(f"{each}.".startswith(start) for each in _PUT_BACK)


def advice(name: str, is_missing: bool = False) -> str:
    """Returns what to do about a name (see `find`); "" if the table does not have it.

    If the package that the advice recommends is installed, the advice says so. `is_missing` means
    that the name was looked up with `patch_tensorflow`, and does not exist.
    """
    entry = find(name)
    text = entry.fate.advice if entry else ""
    count = parameters.POSITIONS.get(public_name(name))
    if count:
        text = f"{text} Pass all parameters but the first {count} by name.".lstrip()
    package = re.search(r"pip install (?:--no-deps )?([\w-]+)(?![\w=-])", text)
    if package and is_installed(package.group(1).replace("-", "_")):
        if is_missing and entry.fate.now:
            home, _, last = entry.fate.now.rpartition(".")
            return f"{home} has no {last}."
        text = text.replace(package.group(), "installed here")
    return text


def public_name(name: str) -> str:
    """Returns a name in the form that the table uses: with a short prefix and a public module."""
    name += "."
    for long, short in _PREFIXES:
        if name.startswith(long):
            name = short + name[len(long) :]
    name = name[:-1]
    known = PUBLIC_NAMES.get(name) or moved_names.DEFINED_IN.get(name)
    if known:
        return known
    home, _, last = name.rpartition(".")
    module = moved_names.DEFINED_IN.get(home)
    if home.startswith("tfa.optimizers."):
        module = "tfa.optimizers"
    public = f"{module}.{last}"
    is_in_table = public in FATES or module in moved_names.MODULES
    return public if is_in_table else name


def new_name(name: str, found: Found) -> Optional[str]:
    """Returns the name to write instead of an old name (as `public_name` returns it), or None."""
    attribute = name[len(found.name) :]  # "" or ".x"
    now = (found.fate.now + attribute) if found.fate.now else moved_names.MODULES.get(name)
    if now is None or (now.rpartition(".")[0] in _OURS and now not in _NEW_NAMES):
        return None
    now = FATES[now].now if now in FATES else now
    now = now.replace(moved_names.KERAS_OPTIMIZERS, moved_names.KERAS + ".optimizers")
    public = now.replace("tf.python.util", "tf")
    return public if public in _OF_NEST else re.sub(r"^tf\.python\.", "tensorflow.python.", now)


def is_added(old: str) -> bool:
    """Returns whether `patch_tensorflow` adds a name of the table where TensorFlow lacks it."""
    fate = FATES[old]
    is_object = fate.now and "(" not in fate.now  # otherwise an expression
    if not is_object or not old.startswith("tf."):
        return False
    return fate.is_here and (fate.kind == OURS or old in MOVED or is_of_contrib(old))


def is_of_contrib(name: str) -> bool:
    """Returns whether an old name is of tf.contrib or tf.examples, which TensorFlow 1 has."""
    return name.startswith(("tf.contrib.", "tf.examples."))


def names_in(module: str) -> List[str]:
    """Returns the names that `patch_tensorflow` adds to a module because they have rows.

    Names that the module has from a `whole_module` are left out.
    """
    homes = public_name(module), module.replace("tensorflow", "tf", 1)
    names = (name for name in (*FATES, *PUBLIC_NAMES) if name.rpartition(".")[0] in homes)
    return [name for name in names if is_added(PUBLIC_NAMES.get(name, name))]


def whole_module(module: str) -> Optional[str]:
    """Returns the name of the module that has the names of an old module now, or None."""
    moved_to = moved_names.MODULES.get(public_name(module))
    return moved_to if moved_to and Fate(moved_to, "").is_here else None


_PREFIXES = (  # applied in this order
    ("tensorflow_core.", "tensorflow."),
    ("tensorflow_estimator.contrib.", "tf.contrib."),
    ("tensorflow_addons.", "tfa."),
    ("tensorflow.", "tf."),
    ("tf.compat.v1.", "tf."),
)


def _fate(now: Optional[str], advice: str = "") -> Fate:
    """Returns a `Fate`; the default of `advice` is the advice on the module of `now`."""
    on_modules = (text for home, text in moved_names.ADVICE if f"{now}.".startswith(home + "."))
    return Fate(now, advice or next(on_modules, ""))


def _fates(rows: Iterable[table.Row]) -> Dict[str, Fate]:
    fates: Dict[str, Fate] = {}
    for row in rows:
        for old, new in row.full_names():
            now = row.now and f"{row.now}.{new}".replace("builtins.", "")
            fates[old] = _fate(now, row.advice)
    return fates


UNKNOWN = Fate(None, "TensorFlow 1.15 has no such public name.")
_LINES = map(str.split, KNOWN_NAMES_FILE.read_text(encoding="utf-8").splitlines())
KNOWN_NAMES = {home: names for home, *names in _LINES}
OPTIMIZERS = _fates(table.rows("optimizers.txt"))
FATES = {**OPTIMIZERS, **_fates(table.rows("moved_names.txt"))}
_ADAPTED = _fates(parameters.NAMES)
FATES.update((old, Fate(fate.now, parameters.ADVICE)) for old, fate in _ADAPTED.items())
PARAMETERS = {old: fate.advice for old, fate in _ADAPTED.items()}  # see `parameters.NAMES`
LIBRARIES = _fates(libraries.NAMES)
LIBRARIES.update((name, Fate(moved_to, "")) for name, moved_to in libraries.MODULES.items())
_ROOTS = {name.partition(".")[0] for name in LIBRARIES}
# The names that live elsewhere and are no optimizers.
MOVED = {old for old, fate in FATES.items() if fate.now and old not in OPTIMIZERS}
MODULES, NEED_PACKAGES = moved_names.REMOVED_MODULES, moved_names.NEED_PACKAGES
FATES.update(
    (module, Fate(None, advice)) for module, advice in {**MODULES, **NEED_PACKAGES}.items()
)
FATES["tf.contrib.opt.python.training.weight_decay_optimizers.ShampooWOptimizer"] = Fate(
    "legacy_opt.extend_with_decoupled_weight_decay(legacy_opt.ShampooOptimizer)",
    "Pass mat_gbar_decay; the original gives it the value of mat_gbar_weight.",
)

_NEW_NAMES = {fate.now for fate in FATES.values() if fate.kind == OURS}
_OURS = {name.rpartition(".")[0] for name in _NEW_NAMES}  # where only `_NEW_NAMES` are new names
_NEST_NAMES = "assert_same_structure flatten is_nested map_structure pack_sequence_as"
_OF_NEST = {f"tf.nest.{name}" for name in _NEST_NAMES.split()}

PUBLIC_NAMES = {
    private: f"{row.now}.{name}"
    for row in table.rows("private_names.txt")
    for private, name in row.full_names()
}

_PUT_BACK = [
    *(old for old, fate in FATES.items() if fate.now),
    *(private for private, public in PUBLIC_NAMES.items() if FATES[public].now),
    *moved_names.DEFINED_IN,
]
