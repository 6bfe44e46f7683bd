"""What `legacy-opt audit` tells of a name: the one table of old names, and what needs no table."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple, Optional

from .. import old_names

STAYS, CHANGE, PERSON = "stays", "change", "person"
KEYS = ("Adagrad", "Adam", "Ftrl", "Momentum", "RMSProp", "SGD")  # of tf.contrib.layers
_CLASSES_OF_KEYS = dict(
    {key: f"tf.compat.v1.train.{key}Optimizer" for key in KEYS},
    SGD="tf.compat.v1.train.GradientDescentOptimizer",
)
_KERAS_KEYS = [
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "ftrl",
    "lamb",
    "lion",
    "muon",
    "nadam",
    "rmsprop",
    "sgd",
]


class Verdict(NamedTuple):
    """What is to be done about a name.

    Attributes:
      status: STAYS, CHANGE (it is told how) or PERSON.
      name: as the table of old names has it.
      instead: the name to write instead, or None.
      advice: a sentence, or "".
      is_guess: nothing is known of it but that it is called an optimizer.
    """

    status: str
    name: Optional[str]
    instead: Optional[str]
    advice: str
    is_guess: bool = False


# Modules of the table that are not only of optimizers: these names in them are.
_MODULES = {
    "tf.contrib.layers": "OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES optimize_loss",
    "tf.contrib.layers.python.layers.optimizers": "adaptive_clipping_fn",
    "tf.contrib.training": "create_train_op add_gradients_summaries clip_gradient_norms "
    "clip_gradient_norms_fn multiply_gradients",
    "tf.contrib.estimator": "clip_gradients_by_norm TowerOptimizer replicate_model_fn",
}
_HOMES = re.compile(
    r"tf\.train\.|tf\.contrib\.(opt|optimizer_v2|tpu|mixed_precision)\.|tfa\.optimizers\.|"
    r"tensor2tensor\.|(optimization|lamb_optimizer)\."
)
_OPTIMIZER = re.compile(r"Optimizer(V\d)?$")
_V1 = re.compile(r"(?:tensorflow|tensorflow_core)\.compat\.v1\.|legacy_opt\.")
_KERAS = re.compile(
    r"(?P<home>tensorflow(?:_core)?(?:\.compat\.v2)?|(?:\w+\.)*(?:tf_)?keras(?:\.\w+)*?)\."
    r"optimizers?(?:_v[12])?(?:\.(?P<legacy>legacy))?(?:\.(?!schedules)[a-z]\w*)*"
    r"\.(?P<name>[A-Z]\w*)$"
)
_PRIVATE = re.compile(r"tensorflow(?:_core)?\.python\.training\.(?:\w+\.)*(?P<name>\w+)$")
_SLIM = re.compile(r"(?:tf_slim|tensorflow\.contrib\.slim)\.(?:\w+\.)*(?P<name>\w+)$")
_SLIM_HELPERS = (
    "create_train_op",
    "optimize_loss",
    "adaptive_clipping_fn",
    "OPTIMIZER_CLS_NAMES",
)
_HERE = ("to_keras", "to_plain_keras", "to_v1", "from_plain_keras")  # besides classes

_ESTIMATOR = re.compile(r"tensorflow\.(compat\.v1\.)?(estimator|contrib\.learn)\.[A-Z]")
_V1_ESTIMATOR = re.compile(r"tensorflow\.(compat\.v1\.estimator|contrib\.learn)\.")

# Names that are not old ones, of which something is to be known nevertheless.
_TOLD = {
    "tf.tpu.CrossShardOptimizer": "It takes any of these optimizers.",
    "tf.mixed_precision.enable_mixed_precision_graph_rewrite": "It takes any of these optimizers.",
    "tf.train.experimental.enable_mixed_precision_graph_rewrite": "It takes any of these "
    "optimizers.",
    "horovod.tensorflow.DistributedOptimizer": "It takes any of these optimizers.",
}
_GONE = {
    "training_ops": "It is private to TensorFlow and not in 2.21: take tf.raw_ops.",
    "get_optimizer_instance": "It is private to Estimators, which TensorFlow has up to 2.15: call "
    "the class.",
    "get_optimizer_instance_v2": "It is private to Estimators, which TensorFlow has up to 2.15: "
    "call the class.",
}


@functools.lru_cache(maxsize=None)
def verdict(name):
    """Tells of one name.

    Args:
      name: in full, with dots, beginning with the package that is imported.

    Returns:
      A `Verdict`, or None of what is no optimizer, nor a helper of theirs.
    """
    last = name.rpartition(".")[2]
    if name.startswith("legacy_opt."):
        ours = _OPTIMIZER.search(last) or last in _HERE or name in _now()
        return Verdict(STAYS, name, None, "") if ours else None
    keras = _KERAS.match(name)
    if keras:
        return _keras(name, keras)
    if last in _GONE and ".python." in name and name.startswith("tensorflow"):
        return Verdict(PERSON, name, None, _GONE[last])
    slim = _SLIM.match(name)
    if slim and slim.group("name") in _SLIM_HELPERS:
        return _slim(name, slim.group("name"))
    return _of_the_table(name)


def _keras(name, match):
    public = f"tf.keras.optimizers.{match.group('name')}"
    if re.search(r"\.(python|src|contrib)\.", name):
        return Verdict(CHANGE, public, public, "The module is not public.")
    if match.group("name") in ("Optimizer", "OptimizerV2"):
        return Verdict(STAYS, public, None, "Keras' base class.")
    legacy = "Keras 2's from TensorFlow 2.11 on; with Keras 3 tf_keras has it."
    return Verdict(STAYS, public, None, legacy if match.group("legacy") else "Keras' own.")


def _slim(name, last):
    if name.startswith("tf_slim"):
        return Verdict(STAYS, name, None, "It takes any of these optimizers.")
    return Verdict(CHANGE, old_names.public_name(name), "legacy_opt." + last, "")


def _of_the_table(name):
    private = _PRIVATE.match(name)
    public = old_names.public_name(name)
    last = public.rpartition(".")[2]
    if private and public.startswith("tf.python."):
        public = "tf.train." + last
    public = _by_two_parts(public)
    if public in _TOLD:
        return Verdict(STAYS, public, None, _TOLD[public])
    found = old_names.find(public)
    if found is None or found.name != public:
        return _unknown(public, found)
    if not _is_of_optimizers(public):
        return None
    fate = found.fate
    if fate.kind == old_names.NOBODYS:
        return Verdict(PERSON, public, None, fate.advice)
    if fate.kind == old_names.TENSORFLOWS and _V1.match(name):
        return Verdict(STAYS, public, None, fate.advice)
    advice = "The module is private to TensorFlow." if private else ""
    return Verdict(CHANGE, public, fate.now, fate.advice or advice)


def _by_two_parts(public):
    """`bert.optimization.X` is in the table as `optimization.X`: packages copy such files."""
    two = ".".join(public.split(".")[-2:])
    return two if two in old_names.FATES and not public.startswith("tf.") else public


def _is_of_optimizers(public):
    module, _, last = public.rpartition(".")
    if module in _MODULES:
        return last in _MODULES[module].split()
    return bool(_HOMES.match(public))


def _unknown(public, found):
    """Of a name that the table does not have: is it an optimizer by its name?"""
    module, _, last = public.rpartition(".")
    if public.startswith("tfa.optimizers.") and last[:1].isupper():
        return Verdict(PERSON, public, None, "It is unknown here.")
    if not _OPTIMIZER.search(last) or not module:
        return None
    if module == "tf.train":
        return Verdict(PERSON, public, None, "It is not TensorFlow's, nor DeepRec's: whose is it?")
    if found is not None:
        return Verdict(PERSON, public, None, found.fate.advice)
    root = public.partition(".")[0]
    advice = f"It is unknown here: is it a v1 optimizer of {root!r}?"
    return Verdict(PERSON, public, None, advice, is_guess=True)


@functools.lru_cache(maxsize=None)
def _now():
    return {fate.now for fate in old_names.FATES.values()}


def verdict_on_own(name):
    """Tells of a function that the code base itself has: those of tf_slim and others are known."""
    found = verdict(name)
    return None if found is None or found.is_guess else found


def is_module(name):
    """Whether a name that something is told of is one of a module: its import tells it all."""
    return name.endswith(".training_ops")


def speaks_of_optimizers(words):
    """Whether one of some names or strings has the word in it."""
    return any("optimizer" in word.lower() for word in words)


def is_optimizers_name(name):
    """Whether a class with this name is likely to be an optimizer."""
    return bool(_OPTIMIZER.search(name))


def is_tensorflow(name):
    """Whether a full name is one of TensorFlow's or Keras', of what is in no code base."""
    return isinstance(name, str) and name.partition(".")[0] in ("tensorflow", "keras")


def is_canned_estimator(name):
    """Whether a full name is one of a model that may get its optimizer as a string."""
    return bool(_ESTIMATOR.match(name))


def verdict_on_class(name):
    """Tells of a class that a code base defines: is it one whose replacement is known by name?

    Returns:
      The name of ours, or None.
    """
    for known, fate in old_names.FATES.items():
        elsewhere = not known.startswith(("tf.contrib", "tfa."))
        if fate.kind == old_names.OURS and elsewhere and known.rpartition(".")[2] == name:
            return fate.now
    return None


def verdict_on_stranger(name, modules):
    """Tells of a class that a code base defines, and whose bases do not make it an optimizer.

    Args:
      name: the class's.
      modules: the full names that its module may have.

    Returns:
      A `Verdict` by the row that the table has for it, in its package or in others; or None.
    """
    for known, fate in old_names.FATES.items():
        home, _, last = known.rpartition(".")
        if last != name or known.startswith("tf.") or fate.kind == old_names.TENSORFLOWS:
            continue
        status = PERSON if fate.kind == old_names.NOBODYS else CHANGE
        if any((old_names.public_name(each) + ".").startswith(home + ".") for each in modules):
            return Verdict(status, known, fate.now, fate.advice)
        if _OPTIMIZER.search(name) and not known.startswith("tfa."):
            advice = f"If it is the one that others know, too: {fate.advice or 'the same.'}"
            return Verdict(status, known, fate.now, advice, is_guess=True)
    return None


def verdict_on_key(key, taker):
    """Tells of an optimizer that is named by a string.

    Args:
      key: the string.
      taker: the full name of what is called with it, or None.

    Returns:
      A `Verdict`, or None of a string that names no optimizer.
    """
    taker = taker or ""
    told = repr(key)
    helper = taker.endswith("optimize_loss")
    if not helper and key not in KEYS and key.lower() not in _KERAS_KEYS:
        return None
    if helper or _V1_ESTIMATOR.match(taker):
        if key in KEYS:
            return Verdict(STAYS, told, None, f"It is {_CLASSES_OF_KEYS[key]}.")
        return Verdict(PERSON, told, None, f"It is none of {', '.join(KEYS)}.")
    if _ESTIMATOR.match(taker):
        public = "tf.compat.v1" + taker[len("tensorflow") :]
        return Verdict(CHANGE, told, public, "In TensorFlow 2 tf.estimator takes it for Keras'.")
    if re.search(r"(^|\.)(compile|optimizers\.get)$", taker):
        return Verdict(STAYS, told, None, "Keras' own.")
    whose = taker.rpartition(".")[2] or "What takes it"
    return Verdict(STAYS, told, None, f"{whose} tells what it stands for.")
