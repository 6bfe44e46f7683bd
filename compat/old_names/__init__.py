"""The table from old names of optimizers and helpers in TF1 code to their replacements.

`compat.patch_tensorflow`, `legacy-opt run` and `legacy-opt audit` use this table. A test checks
that docs/from_to.md agrees with the table. The rows are in `table.py`. Old names of TensorFlow
begin with `tf`, its usual alias. The entry of a module applies to all names in the module, except
for names that have their own entry.

In this package, only `patching.py` imports TensorFlow.
"""

from typing import NamedTuple, Optional

from . import table

OURS, TENSORFLOWS, NOBODYS = "ours", "TensorFlow's", "nobody's"


class Fate(NamedTuple):
    """The replacement of an old name.

    Attributes:
      now: the new name, "legacy_opt.X" or "tf.compat.v1.….X", or an expression with such names;
        None if there is no replacement.
      advice: what to do if there is no replacement, else what to watch out for; may be "".
    """

    now: Optional[str]
    advice: str

    @property
    def kind(self):
        """Who has the replacement: OURS (legacy_opt), TENSORFLOWS (TensorFlow) or NOBODYS."""
        if self.now is None:
            return NOBODYS
        return OURS if self.now.startswith("legacy_opt.") else TENSORFLOWS


class Found(NamedTuple):
    """The table entry that `find` returns.

    Attributes:
      name: the name of the entry: the name that was looked up, or the name of a parent module.
      fate: the `Fate` of the entry.
    """

    name: str
    fate: Fate


def find(name):
    """Looks up an old name in the table.

    Args:
      name: a dotted name such as "tf.contrib.opt.AdamWOptimizer". It may begin with "tensorflow" or
        "tf.compat.v1" instead of "tf". Instead of the public module, it may contain the private
        module that defined the object.

    Returns:
      A `Found`, or None if the table has neither the name nor one of its parent modules.
    """
    name = public_name(name)
    while name:
        if name in FATES:
            return Found(name, FATES[name])
        name = name.rpartition(".")[0]
    return None


def public_name(name):
    """Returns a name in the form that the table uses: with a short prefix and a public module."""
    name += "."
    for long, short in _PREFIXES:
        if name.startswith(long):
            name = short + name[len(long) :]
    name = name[:-1]
    return PUBLIC_NAMES.get(name, name)


_PREFIXES = (  # applied in this order
    ("tensorflow_core.", "tensorflow."),
    ("tensorflow_estimator.contrib.", "tf.contrib."),
    ("tensorflow_addons.", "tfa."),
    ("tensorflow.", "tf."),
    ("tf.compat.v1.", "tf."),
)


def _with_modules(module, names):
    for name in names.split():
        old, _, new = name.partition("=")
        yield f"{module}.{old}", new or old


FATES = {
    old: Fate(now_in and f"{now_in}.{new}", advice)
    for module, names, now_in, advice in table.NAMES
    for old, new in _with_modules(module, names)
}
FATES.update((module, Fate(None, advice)) for module, advice in table.MODULES.items())
FATES["tf.contrib.opt.python.training.weight_decay_optimizers.ShampooWOptimizer"] = Fate(
    "legacy_opt.extend_with_decoupled_weight_decay(legacy_opt.ShampooOptimizer)",
    "Pass mat_gbar_decay; the original gives it the value of mat_gbar_weight.",
)

PUBLIC_NAMES = {
    f"{package}.{module}.{name}": f"{public}.{name}"
    for public, package, modules in table.DEFINED_IN
    for module, names in modules.items()
    for name in names.split()
}
