"""Judges names for `legacy-opt audit`, by the table `old_names` and by further rules."""

from __future__ import annotations

import functools
import re
from typing import Any, Iterable, Match, NamedTuple, Optional

from ... import estimator_names
from .. import old_names
from ..old_names import libraries
from ..old_names.moved_names import ESTIMATOR, SLIM_NEEDS

STAYS, CHANGE, MANUAL = "stays", "change", "manual"
# The strings that `tf.contrib.layers.optimize_loss` accepts as `optimizer`.
KEYS = ("Adagrad", "Adam", "Ftrl", "Momentum", "RMSProp", "SGD")
_CLASSES_OF_KEYS = dict(
    {key: f"tf.compat.v1.train.{key}Optimizer" for key in KEYS},
    SGD="tf.compat.v1.train.GradientDescentOptimizer",
)
_KERAS_KEYS = "adadelta adafactor adagrad adam adamax adamw ftrl lamb lion muon nadam rmsprop sgd"


class Verdict(NamedTuple):
    """The judgement on a name: whether it can stay, must be changed or needs manual work."""

    status: str  # STAYS, CHANGE (`instead` or `advice` says how) or MANUAL
    name: Optional[str]  # shown to users, usually spelled as in the table of old names
    instead: Optional[str]  # the replacement to write
    advice: str  # a sentence, or ""
    is_guess: bool = False  # whether only a name, string or method suggests an optimizer


# Modules in which only the names of `old_names.OPTIMIZERS` concern optimizers.
_MODULES = [
    f"tf.contrib.{name}"
    for name in ("estimator", "layers", "layers.python.layers.optimizers", "training")
]
# Modules in which all names of the table concern optimizers.
_HOMES = re.compile(
    r"tf\.train\.|tf\.contrib\.(opt|optimizer_v2|tpu|mixed_precision)\.|tfa\.optimizers\.|"
    r"tensor2tensor\.|(optimization|lamb_optimizer)\."
)
OPTIMIZER = re.compile(r"Optimizer(V\d)?$")
# Modules of optimizers in packages that legacy-opt does not know.
_OPTIMIZERS = re.compile(r"(^|[._])optim(izers?|ization)?$")
_OTHER_FRAMEWORKS = ("flax", "jax", "optax", "scipy", "tf", "torch")
_V1 = re.compile(r"(?:tensorflow|tensorflow_core)\.compat\.v1\.|legacy_opt\.")
_KERAS = re.compile(
    r"(?=(?:tensorflow(?:_core)?|keras|tf_keras)\.)"
    r"(?P<home>tensorflow(?:_core)?(?:\.compat\.v2)?|(?:\w+\.)*(?:tf_)?keras(?:\.\w+)*?)\."
    r"optimizers?(?:_v[12])?(?:\.(?P<legacy>legacy))?(?:\.(?!schedules)[a-z]\w*)*"
    r"\.(?P<name>[A-Z]\w*)$"
)
# The names in `tf.keras.optimizers.legacy`, and others in `tf.keras.optimizers` of any version.
KERAS_LEGACY = "Adadelta Adagrad Adam Adamax Ftrl Nadam Optimizer RMSprop SGD"
_NEWER_KERAS = (
    "Adafactor AdamW Lamb Lion LossScaleOptimizer MultiOptimizer Muon OptimizerMap "
    "ScheduleFreeAdamW"
)
_KERAS_3 = "If tf.keras is Keras 3, use tf_keras."
_LEGACY = (
    f"From TensorFlow 2.11 on, Keras 2 has its old optimizers in optimizers.legacy. {_KERAS_3}"
)
WRITE_A_RULE = (
    "Write it as one rule: legacy_opt.RuleOptimizer (`legacy-opt docs write_an_optimizer`)."
)
KERAS_1 = (
    "An optimizer of Keras before OptimizerV2: it needs Keras 2's private base class "
    f"optimizer_v1.Optimizer, in a graph (`legacy-opt docs any_optimizer`). {WRITE_A_RULE}"
)
_PRIVATE = re.compile(r"tensorflow(?:_core)?\.python\.training\.(?:\w+\.)*(?P<name>\w+)$")
# Without contrib.slim.learning, whose functions have other parameters than those of legacy_opt.
_SLIM = re.compile(
    r"(?:tf_slim|tensorflow\.contrib\.slim(?!.*\.learning))\.(?:\w+\.)*(?P<name>\w+)$"
)
_SLIM_HELPERS = ("create_train_op", "optimize_loss", "adaptive_clipping_fn", "OPTIMIZER_CLS_NAMES")
_CONVERTERS = ("to_keras", "to_plain_keras", "to_v1", "from_plain_keras")  # of legacy_opt.compat

# Premade Estimators accept the name of an optimizer.
CANNED_ESTIMATOR = re.compile(r"tensorflow\.(compat\.v1\.)?(estimator|contrib\.learn)\.[A-Z]")
_V1_ESTIMATOR = re.compile(r"tensorflow\.(compat\.v1\.estimator|contrib\.learn)\.")

_REPLACEMENTS = {fate.now for fate in old_names.FATES.values()}
_ACCEPTS_ANY = "It accepts every TensorFlow 1 optimizer, also the optimizers of legacy_opt."
# Classes and functions that wrap optimizers and have no entry in the table of old names.
_WRAPPERS = {
    "tf.tpu.CrossShardOptimizer",
    "tf.mixed_precision.enable_mixed_precision_graph_rewrite",
    "tf.train.experimental.enable_mixed_precision_graph_rewrite",
    "horovod.tensorflow.DistributedOptimizer",
}
WITH_DECAY = (
    "legacy_opt.AdamWOptimizer",
    "legacy_opt.DecoupledWeightDecayExtension",
    "legacy_opt.MomentumWOptimizer",
    "legacy_opt.extend_with_decoupled_weight_decay",
)
DECAY_RACE = (
    "In tf.contrib.opt nothing orders gradients and weight decay, so two runs differ. To compare "
    "results, use legacy_opt on 1.15, too (`legacy-opt docs differences_from_originals`)."
)
_REMOVED = ("get_optimizer_instance", "get_optimizer_instance_v2")


@functools.lru_cache(maxsize=None)
def verdict(name: str) -> Optional[Verdict]:
    """Judges a full dotted name; returns None if it has nothing to do with optimizers."""
    last = name.rpartition(".")[2]
    if name.startswith("legacy_opt."):
        is_ours = OPTIMIZER.search(last) or last in _CONVERTERS or name in _REPLACEMENTS
        return Verdict(STAYS, name, None, "") if is_ours else None
    keras = _KERAS.match(name)
    if keras:
        return _keras_verdict(name, keras)
    if last in _REMOVED and ".python." in name and name.startswith("tensorflow"):
        advice = "Private to Estimators: call the optimizer's class."
        return Verdict(CHANGE, name, None, advice)
    slim = _SLIM.match(name)
    if slim and slim.group("name") in _SLIM_HELPERS:
        if name.startswith("tf_slim"):
            return Verdict(STAYS, name, None, f"{_ACCEPTS_ANY} {SLIM_NEEDS}")
        now = "legacy_opt." + slim.group("name")
        return Verdict(CHANGE, old_names.public_name(name), now, "")
    return _table_verdict(name)


def _keras_verdict(name: str, match: Match[str]) -> Verdict:
    last = match.group("name").replace("OptimizerV2", "Optimizer")
    public = f"tf.keras.optimizers.{last}"
    if last == "TFOptimizer":
        advice = "It wraps a TensorFlow 1 optimizer for Keras."
        return Verdict(CHANGE, public, "legacy_opt.compat.to_keras", advice)
    is_of_keras_1 = re.search(r"\.contrib\.|optimizer_v1|\.python\.keras\.optimizers\.", name)
    known = KERAS_LEGACY.split()
    if not (is_of_keras_1 or match.group("legacy")):
        known += _NEWER_KERAS.split()
    if last not in known:
        return Verdict(MANUAL, public, None, "Keras has no such optimizer.")
    if is_of_keras_1:
        if last == "Optimizer":
            return Verdict(CHANGE, public, None, KERAS_1)
        advice = "It is another class: pass the learning rate, whose default may differ, by name."
        return Verdict(CHANGE, public, public, advice)
    advice_on_private = "This module path is private to Keras."
    if "optimizer_v2" in name and last in KERAS_LEGACY.split():
        advice = (
            f"{advice_on_private} Up to TensorFlow 2.10, use {public}, which is another class from "
            f"2.11 on. {_KERAS_3}"
        )
        return Verdict(CHANGE, public, f"tf.keras.optimizers.legacy.{last}", advice)
    if re.search(r"\.(python|src)\.", name):
        return Verdict(CHANGE, public, public, advice_on_private)
    if last == "Optimizer":
        return Verdict(STAYS, public, None, "Keras' base class.")
    advice = _LEGACY if match.group("legacy") else "A Keras optimizer."
    return Verdict(STAYS, public, None, advice)


def _table_verdict(name: str) -> Optional[Verdict]:
    is_private = bool(_PRIVATE.match(name))
    public = old_names.public_name(name)
    if is_private and public.startswith("tf.python."):
        public = "tf.train." + public.rpartition(".")[2]
    public = _last_two_parts(public)
    if public in _WRAPPERS:
        return Verdict(STAYS, public, None, _ACCEPTS_ANY)
    entry = old_names.find(public)
    if entry is None or entry.name != public:
        return _unknown_verdict(public, entry)
    if not _concerns_optimizers(public):
        return None
    fate = entry.fate
    if fate.kind == old_names.NOBODYS:
        return Verdict(MANUAL, public, None, fate.advice)
    if _V1.match(name) and fate.now == public.replace("tf", "tf.compat.v1", 1):
        return Verdict(STAYS, public, None, fate.advice)
    advice = "This module path is private to TensorFlow." if is_private else ""
    if public.startswith("tf.contrib.opt.") and fate.now in WITH_DECAY:
        advice = DECAY_RACE
    advice = old_names.advice(public) or advice
    return Verdict(CHANGE, public, old_names.new_name(public, entry), advice)


def _last_two_parts(public: str) -> str:
    """Shortens a name such as `bert.optimization.X` to the table's `optimization.X`.

    This finds copies of a file in other packages, such as copies of BERT's `optimization.py`.
    """
    last_two = ".".join(public.split(".")[-2:])
    is_copy = last_two in old_names.FATES and not public.startswith("tf.")
    return last_two if is_copy else public


def _concerns_optimizers(public: str) -> bool:
    if public.rpartition(".")[0] in _MODULES:
        return public in old_names.OPTIMIZERS
    return bool(_HOMES.match(public))


def verdict_on_removed(name: str) -> Verdict:
    """Judges a name for which `old_names.is_removed` is true."""
    public = old_names.public_name(name)
    entry = old_names.find(name)
    if entry and entry.name in old_names.NEED_PACKAGES:
        return _verdict_on_package(public, entry)
    now = entry and old_names.new_name(public, entry)
    # A module whose names have replacements counts as provided: each use of them has a verdict.
    is_provided = old_names.is_put_back(name) or name in libraries.GIVEN_BACK
    status = CHANGE if now or is_provided else MANUAL
    return Verdict(status, public, now, old_names.advice(name))


def _verdict_on_package(public: str, entry: old_names.Found) -> Verdict:
    """Judges a name of a module that needs other packages from TensorFlow 2.16 on."""
    if entry.name != "tf.estimator":
        return Verdict(STAYS, public, None, entry.fate.advice)
    if public != entry.name and not estimator_names.is_known(public[len(entry.name) + 1 :]):
        return Verdict(MANUAL, public, None, "TensorFlow 1 never had this name.")
    return Verdict(CHANGE, public, ESTIMATOR + public[len(entry.name) :], entry.fate.advice)


def _unknown_verdict(public: str, entry: Optional[old_names.Found]) -> Optional[Verdict]:
    """Judges a name that is not in the table."""
    module, _, last = public.rpartition(".")
    if public.startswith("tfa.optimizers.") and last[:1].isupper():
        return Verdict(MANUAL, public, None, "legacy-opt does not know this name.")
    if not module:
        return None
    if not OPTIMIZER.search(last) and not _is_in_a_module_of_optimizers(module, last):
        return None
    if module == "tf.train":
        advice = "Neither TensorFlow nor DeepRec has it: find out which package defines it."
        return Verdict(MANUAL, public, None, advice)
    if entry is not None and entry.name in old_names.NEED_PACKAGES:
        return _verdict_on_package(public, entry)
    if entry is not None:
        return Verdict(MANUAL, public, None, entry.fate.advice)
    root = public.partition(".")[0]
    advice = f"legacy-opt does not know this name: check whether {root!r} has a v1 optimizer."
    return Verdict(MANUAL, public, None, advice, is_guess=True)


def _is_in_a_module_of_optimizers(module: str, last: str) -> bool:
    """Returns whether a name is like `company.optim.TurboAdam` or `company.optim.get_optimizer`."""
    if module.partition(".")[0] in _OTHER_FRAMEWORKS:
        return False
    is_class = last[:1].isupper() and not last.isupper()
    return bool(_OPTIMIZERS.search(module)) and (is_class or last.endswith("_optimizer"))


def is_tensorflow(name: Any) -> bool:
    """Returns whether a result of `NameResolver.resolve` is a full name of TensorFlow or Keras."""
    return isinstance(name, str) and name.partition(".")[0] in ("tensorflow", "keras")


def replacement_of_class(name: str) -> Optional[str]:
    """Returns the class of legacy_opt that replaces a copied class with this name, or None."""
    for old, fate in old_names.FATES.items():
        may_be_copied = not old.startswith(("tf.contrib", "tfa."))
        has_name = old.rpartition(".")[2] == name
        if may_be_copied and has_name and fate.kind == old_names.OURS:
            return fate.now
    return None


def verdict_on_unrelated_class(name: str, modules: Iterable[str]) -> Optional[Verdict]:
    """Judges a class that does not extend an optimizer, by the table row with its name, if any.

    `modules` are the full names under which the class's module may be imported. If the row is for
    another package, the verdict is a guess.
    """
    for old, fate in old_names.FATES.items():
        home, _, last = old.rpartition(".")
        if last != name or old.startswith("tf.") or fate.kind == old_names.TENSORFLOWS:
            continue
        status = MANUAL if fate.kind == old_names.NOBODYS else CHANGE
        public_modules = (old_names.public_name(each) + "." for each in modules)
        if any(each.startswith(home + ".") for each in public_modules):
            return Verdict(status, old, fate.now, fate.advice)
        if OPTIMIZER.search(name) and not old.startswith("tfa."):
            advice = f"It may be a copy of {old}. {fate.advice}".rstrip()
            return Verdict(status, old, fate.now, advice, is_guess=True)
    return None


def verdict_on_key(key: str, callee: Optional[str]) -> Optional[Verdict]:
    """Judges a string that is passed to `callee`; returns None if it does not name an optimizer."""
    callee = callee or ""
    name = repr(key)
    is_helper = callee.endswith("optimize_loss")
    is_key = key in KEYS or key.lower() in _KERAS_KEYS.split()
    if not (is_helper or is_key):
        return None
    if is_helper or _V1_ESTIMATOR.match(callee):
        if key in KEYS:
            return Verdict(STAYS, name, None, f"It means {_CLASSES_OF_KEYS[key]}.")
        return Verdict(MANUAL, name, None, f"It is not one of {', '.join(KEYS)}.")
    if CANNED_ESTIMATOR.match(callee):
        public = ESTIMATOR + callee[len("tensorflow.estimator") :]
        return Verdict(CHANGE, name, public, "TensorFlow 2's tf.estimator makes a Keras optimizer.")
    if re.search(r"(^|\.)(compile|optimizers\.get)$", callee):
        return Verdict(STAYS, name, None, "A Keras optimizer.")
    function = callee.rpartition(".")[2] or "the code that reads it"
    return Verdict(STAYS, name, None, f"Which optimizer it means depends on {function}.")
