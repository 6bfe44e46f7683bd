"""The optimizers that the benchmarks measure, with their goals.

Most optimizers are compared with a stock optimizer, which is one of TensorFlow's own. The goal is
the largest accepted ratio of the two step times. workloads.py defines the workloads W1 to W4.
"""

from typing import Any, Callable, NamedTuple

import tensorflow as tf

import legacy_opt

v1 = tf.compat.v1

LEARNING_RATE = 0.01
_WEIGHT_DECAY = 1e-5

#: TensorFlow's own optimizers: a dict from the name to a function like `Entry.make`.
STOCK = {
    "stock Adagrad": lambda step: v1.train.AdagradOptimizer(LEARNING_RATE),
    "stock Adam": lambda step: v1.train.AdamOptimizer(LEARNING_RATE),
    "stock Momentum": lambda step: v1.train.MomentumOptimizer(LEARNING_RATE, 0.9),
}


class Entry(NamedTuple):
    """One optimizer to measure.

    Attributes:
      name: the optimizer's name in the report.
      make: a function that takes the global step variable and returns a new optimizer.
      stock: the name of the stock optimizer to compare with, a key of `STOCK`.
      goals: a dict from a workload's name to the goal, or to a dict with separate goals for "ref"
        and "resource" variables. If the goal is None, the ratio is reported without a goal.
      growth: the largest accepted ratio of the optimizer's step time on W4 to its step time on W3;
        None if this ratio is not measured. If `goals` contains "W4", the report also has this
        ratio for the stock optimizer.
      family: the heading of the optimizer's table in the report.
    """

    name: str
    make: Callable[[Any], Any]
    stock: str
    goals: dict
    growth: Any = None
    family: str = ""

    def goal(self, workload, variables):
        """Returns the goal for a workload's name and "ref" or "resource" variables."""
        goal = self.goals[workload]
        return goal[variables] if isinstance(goal, dict) else goal


class AdagradDecayOneByOne(legacy_opt.AdagradDecayOptimizer):
    """AdagradDecay that checks for each variable separately whether a decay is due.

    For dense gradients, `AdagradDecayOptimizer` checks this once for all variables of a device.
    """

    def prepare_step(self, grads_and_vars):
        return {}


def _adagrad_decay(optimizer=legacy_opt.AdagradDecayOptimizer, due=False, composed=False):
    """Returns an `Entry.make` for AdagradDecay.

    Args:
      optimizer: the class.
      due: whether a decay is due in every step. If False, no decay is due.
      composed: whether to compute the update with several TensorFlow operations instead of
        TensorFlow's fused kernel.
    """

    def make(step):
        period = 1 if due else 10**9
        made = optimizer(LEARNING_RATE, step, accumulator_decay_step=period)
        made.use_fused_kernels = not composed
        return made

    return make


def _plain(optimizer, **arguments):
    """Returns an `Entry.make` for an optimizer class without the argument `global_step`."""
    return lambda step: optimizer(learning_rate=LEARNING_RATE, **arguments)


def _stepped(optimizer, **arguments):
    """Returns an `Entry.make` for an optimizer class with the argument `global_step`."""
    return lambda step: optimizer(global_step=step, learning_rate=LEARNING_RATE, **arguments)


_V2 = legacy_opt.AdagradDecayOptimizerV2
_DECAY_GOALS = {"W1": 1.05, "W2": 1.40, "W3": 1.20, "W4": 1.30}
_INFORMATION = {"W1": None, "W2": None, "W3": None}
_WITH_W4 = dict(_INFORMATION, W4=None)
#: `Entry.growth` of optimizers whose sparse step reads and writes only the rows of the batch.
_FLAT = 1.2
#: `Entry.growth` of the same optimizers with native kernels. Native kernels mostly read and write
#: memory, which takes longer in larger tables: a loop in C took 2.3 times as long on W4 as on W3
#: (`make bench` of commit 1eca502).
_OF_MEMORY = 2.0

_ADAGRAD = [
    # The same optimizer under two names: the ratio shows the noise of the measurement.
    Entry("stock Adagrad again", STOCK["stock Adagrad"], "stock Adagrad", _INFORMATION),
    Entry("AdagradDecay", _adagrad_decay(), "stock Adagrad", _DECAY_GOALS, growth=1.15),
    Entry("AdagradDecayV2", _adagrad_decay(_V2), "stock Adagrad", _DECAY_GOALS, growth=1.15),
    Entry(
        "AdagradDecay, all due",
        _adagrad_decay(due=True),
        "stock Adagrad",
        {"W1": 2.8, "W2": None, "W3": 1.20},
    ),
    Entry("AdagradDecayV2, all due", _adagrad_decay(_V2, due=True), "stock Adagrad", {"W3": 1.20}),
    Entry(
        "AdagradDecay, one by one",
        _adagrad_decay(AdagradDecayOneByOne),
        "stock Adagrad",
        {"W2": 2.4},
    ),
    Entry("AdagradDecay, composed", _adagrad_decay(composed=True), "stock Adagrad", _INFORMATION),
    Entry("RegAdagrad", _plain(legacy_opt.RegAdagradOptimizer), "stock Adagrad", _WITH_W4, _FLAT),
]
_MOMENTUM = [
    Entry("stock Momentum again", STOCK["stock Momentum"], "stock Momentum", _INFORMATION),
    Entry(
        "MomentumW",
        _plain(legacy_opt.MomentumWOptimizer, weight_decay=_WEIGHT_DECAY, momentum=0.9),
        "stock Momentum",
        _WITH_W4,
        _FLAT,
    ),
    Entry("LARS", _plain(legacy_opt.LARSOptimizer), "stock Momentum", _WITH_W4, _FLAT),
    Entry("Lion", _plain(legacy_opt.LionOptimizer), "stock Momentum", _WITH_W4, _FLAT),
    Entry(
        "ConditionalGradient",
        _plain(legacy_opt.ConditionalGradientOptimizer),
        "stock Momentum",
        _WITH_W4,
        _FLAT,
    ),
]
_ROW_WISE = [
    Entry("stock Adam again", STOCK["stock Adam"], "stock Adam", _INFORMATION),
    # Only LazyAdam is compared with stock Adam on W4: a step of stock Adam takes a second there.
    Entry("LazyAdam", _plain(legacy_opt.LazyAdamOptimizer), "stock Adam", _WITH_W4, _FLAT),
    Entry(
        "LazyAdamGS", _stepped(legacy_opt.LazyAdamGSOptimizer), "stock Adam", _INFORMATION, _FLAT
    ),
    Entry("AdamAsync", _plain(legacy_opt.AdamAsyncOptimizer), "stock Adam", _INFORMATION, _FLAT),
    Entry(
        "AdamAsync, sparse RMSProp",
        _plain(legacy_opt.AdamAsyncOptimizer, apply_sparse_rmsprop=True),
        "stock Adam",
        {"W3": None},
        _FLAT,
    ),
    Entry("AdaMax", _plain(legacy_opt.AdaMaxOptimizer), "stock Adam", _INFORMATION, _FLAT),
    Entry("NovoGrad", _plain(legacy_opt.NovoGradOptimizer), "stock Adam", _INFORMATION, _FLAT),
    Entry(
        "DiffGrad",
        _plain(legacy_opt.DiffGradOptimizer),
        "stock Adam",
        dict(_INFORMATION, W1=4.0),
        _FLAT,
    ),
    Entry("COCOB", lambda step: legacy_opt.COCOBOptimizer(), "stock Adam", _INFORMATION, _FLAT),
    # Shampoo has no preconditioner along dimensions larger than 768, such as the rows of W3.
    Entry("Shampoo", _stepped(legacy_opt.ShampooOptimizer), "stock Adam", _INFORMATION, _FLAT),
]
_WHOLE_TABLE = [
    Entry("AdamGS", _stepped(legacy_opt.AdamGSOptimizer), "stock Adam", _INFORMATION),
    Entry(
        "AdamW",
        _plain(legacy_opt.AdamWOptimizer, weight_decay=_WEIGHT_DECAY),
        "stock Adam",
        dict(_INFORMATION, W1={"ref": 1.30, "resource": 1.60}),
    ),
    Entry("Nadam", _plain(legacy_opt.NadamOptimizer), "stock Adam", _INFORMATION),
    Entry("RectifiedAdam", _plain(legacy_opt.RectifiedAdamOptimizer), "stock Adam", _INFORMATION),
    Entry("AdaBelief", _plain(legacy_opt.AdaBeliefOptimizer), "stock Adam", _INFORMATION),
    Entry("Yogi", _plain(legacy_opt.YogiOptimizer), "stock Adam", _INFORMATION),
    Entry("AddSign", _plain(legacy_opt.AddSignOptimizer), "stock Adam", _INFORMATION),
    Entry("PowerSign", _plain(legacy_opt.PowerSignOptimizer), "stock Adam", _INFORMATION),
    Entry(
        "AdamWeightDecay",
        _plain(legacy_opt.AdamWeightDecayOptimizer, weight_decay_rate=0.01),
        "stock Adam",
        _INFORMATION,
    ),
    Entry(
        "LAMB",
        _plain(legacy_opt.LAMBOptimizer, weight_decay_rate=0.01),
        "stock Adam",
        _INFORMATION,
    ),
    Entry("Adafactor", _plain(legacy_opt.AdafactorOptimizer), "stock Adam", _INFORMATION),
]


def _native(make):
    """Returns an `Entry.make` for the same optimizer with native kernels."""
    return lambda step: legacy_opt.native.accelerate(make(step), require=True)


def _clipped(step):
    inner = _plain(legacy_opt.AdamWeightDecayOptimizer, weight_decay_rate=0.01)(step)
    return legacy_opt.ClipByGlobalNormOptimizer(inner, 1.0)


def _natives(stock, goals):
    """Returns entries with native kernels. `goals` maps an entry's name to `Entry.goals`."""
    known = {entry.name: entry for entry in _ADAGRAD + _MOMENTUM + _ROW_WISE + _WHOLE_TABLE}
    found = []
    for name, each in goals.items():
        growth = _OF_MEMORY if stock == "stock Adagrad" and known[name].growth else None
        found.append(Entry(f"{name}, native", _native(known[name].make), stock, each, growth))
    return found


_NATIVE_BESIDE_ADAM = {
    "AdaBelief": {"W1": 1.30, "W2": None},
    "Adafactor": {"W1": 1.20, "W2": None},
    "AdagradDecay": {"W1": 0.50, "W2": 0.60},
    "AdamW": {"W1": 0.65, "W2": 0.60},
    "AdamWeightDecay": {"W1": 0.65, "W2": 0.60},
    "AddSign": {"W1": 0.55, "W2": 0.60},
    "COCOB": {"W1": None, "W2": None},
    "DiffGrad": {"W1": 0.95, "W2": 0.55},
    "LAMB": {"W1": 1.30, "W2": 0.80},
    "LARS": {"W1": 0.85, "W2": 0.80},
    "LazyAdam": {"W1": None, "W2": 0.60},
    "Lion": {"W1": None, "W2": None},
    "Nadam": {"W1": None, "W2": None},
    "NovoGrad": {"W1": 1.30, "W2": None},
    "PowerSign": {"W1": 0.55, "W2": 0.60},
    "RectifiedAdam": {"W1": 1.30, "W2": None},
    "Yogi": {"W1": 1.30, "W2": None},
}
_NATIVE_BESIDE_ADAGRAD = {
    "AdagradDecay": {"W2": 0.90, "W3": 0.75},
    "AdamW": {"W3": None},
    "AdamWeightDecay": {"W3": None},
    "AddSign": {"W3": 1.00},
    "DiffGrad": {"W3": 1.00},
    "LazyAdam": {"W3": 0.80},
    "MomentumW": {"W1": None, "W2": None, "W3": None},
    "PowerSign": {"W3": 1.00},
}
#: TensorFlow's own optimizers with native kernels, each compared with itself.
_ACCELERATED = {
    "stock Adam": {"W1": 0.80, "W2": 0.60, "W3": 0.50},
    "stock Adagrad": {"W1": 0.80, "W2": 0.60, "W3": None},
    "stock Momentum": {"W1": 0.80, "W2": 0.60, "W3": None},
}

#: The entries by family; the keys are headings of the report.
FAMILIES = {
    "Compared with Adagrad": _ADAGRAD,
    "Compared with Momentum": _MOMENTUM,
    "Compared with Adam; a sparse step updates only the rows of its batch": _ROW_WISE,
    "Compared with Adam; a sparse step updates the whole table, by definition": _WHOLE_TABLE,
}
#: The families of the entries that need native kernels.
NATIVE_FAMILIES = {
    "Native kernels, compared with Adam": _natives("stock Adam", _NATIVE_BESIDE_ADAM)
    + [
        Entry("clipping and AdamWeightDecay, native", _native(_clipped), "stock Adam", {"W1": 1.0}),
        Entry("clipping and AdamWeightDecay", _clipped, "stock Adam", {"W1": None}),
    ],
    "Native kernels, compared with Adagrad": _natives("stock Adagrad", _NATIVE_BESIDE_ADAGRAD),
    "Native kernels of TensorFlow's own optimizers": [
        Entry(f"{name}, native", _native(STOCK[name]), name, goals)
        for name, goals in _ACCELERATED.items()
    ],
}
ENTRIES = [
    entry._replace(family=family) for family, entries in FAMILIES.items() for entry in entries
]
NATIVE_ENTRIES = [
    entry._replace(family=family)
    for family, entries in NATIVE_FAMILIES.items()
    for entry in entries
]
BY_NAME = {entry.name: entry for entry in ENTRIES}
MAKERS = dict(STOCK, **{entry.name: entry.make for entry in ENTRIES + NATIVE_ENTRIES})
