"""The one table of old names: what became of the optimizers and helpers that TF1 code uses.

`compat.patch_tensorflow`, `legacy-opt run` and `legacy-opt audit` go by it, and docs/from_to.md is
tested against it. Its rows are in `old_names_rows`. Names are written as code has them, with `tf`
for TensorFlow. What is told of a module holds for all in it that is not told of by itself.

Nothing of TensorFlow is imported here.
"""

from typing import NamedTuple, Optional

from . import table

OURS, TENSORFLOWS, NOBODYS = "ours", "TensorFlow's", "nobody's"


class Fate(NamedTuple):
    """What became of a name.

    Attributes:
      now: its name today, "legacy_opt.X" or "tf.compat.v1.….X"; None where nobody has it.
      advice: what to do where nobody has it, what to look out for elsewhere; may be "".
    """

    now: Optional[str]
    advice: str

    @property
    def kind(self):
        """OURS, TENSORFLOWS (which has it still, perhaps elsewhere) or NOBODYS."""
        if self.now is None:
            return NOBODYS
        return OURS if self.now.startswith("legacy_opt.") else TENSORFLOWS


class Found(NamedTuple):
    """What `find` tells of a name.

    Attributes:
      name: the name in the table; that of a module if the name itself is not there.
      fate: a `Fate`.
    """

    name: str
    fate: Fate


def find(name):
    """Looks a name up.

    Args:
      name: with dots, as "tf.contrib.opt.AdamWOptimizer". "tensorflow" and "tf.compat.v1" do as
        well as "tf", and the module that defined a name as well as the one that published it.

    Returns:
      A `Found`, or None if neither the name nor a module that it is in is known.
    """
    name = public_name(name)
    while name:
        if name in FATES:
            return Found(name, FATES[name])
        name = name.rpartition(".")[0]
    return None


def public_name(name):
    """Returns a name as the table has it: short, and of the module that published it."""
    name += "."
    for long, short in _PREFIXES:
        if name.startswith(long):
            name = short + name[len(long) :]
    name = name[:-1]
    return PUBLIC_NAMES.get(name, name)


_PREFIXES = (  # one after the other
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
