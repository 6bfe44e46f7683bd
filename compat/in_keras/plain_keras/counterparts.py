"""The counterparts of v1 optimizers among Keras' own optimizers, and why they may differ.

Names of classes, arguments and slots are in the table `recorded.neighbours`.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional

import numpy as np

import legacy_opt
from legacy_opt.recorded import neighbours

from ..keras_bridge import configuration
from ..v1_optimizers import inspection, serialization

# The kinds of training in which two optimizers are compared.
DENSE, ROWS, REPEATED, RATE = "dense", "some rows", "repeated ids", "learning rate changed"
KINDS = (DENSE, ROWS, REPEATED, RATE)

# Keras 2 would replace an epsilon of 0 by its default. Therefore, instead of 0, Keras 2 gets the
# smallest positive float32, which is too small to change a sum.
SMALLEST = 1e-45


class SlotFormula(NamedTuple):
    """The translation of a slot's value between a v1 optimizer and Keras."""

    text: str  # the formula, with `%(v1)s` and `%(keras)s` for the slots
    to_keras: Callable  # takes the v1 value (an array) and the learning rate; returns Keras' value
    to_v1: Callable  # takes Keras' value and the learning rate; returns the v1 value
    exact: bool  # whether both functions keep all bits


def _velocity(momentum: np.ndarray, rate: float) -> np.ndarray:
    _check_rate(momentum, rate)
    return momentum * momentum.dtype.type(-rate)


def _momentum(velocity: np.ndarray, rate: float) -> np.ndarray:
    _check_rate(velocity, rate)
    if rate == 0:
        return velocity  # all zeros
    return velocity / velocity.dtype.type(-rate)


def _check_rate(slot: np.ndarray, rate: float) -> None:
    if rate == 0 and np.any(slot):
        raise ValueError(
            "The learning rate is 0, and Keras' velocity is v1's momentum times the learning rate, "
            "so the momentum would be lost. Set another learning rate first."
        )


SAME = SlotFormula("%(keras)s", lambda v1, rate: v1, lambda keras, rate: keras, exact=True)
VELOCITY = SlotFormula("%(keras)s = -learning_rate * %(v1)s", _velocity, _momentum, exact=False)


class Counterpart(NamedTuple):
    """The Keras optimizer that is most similar to a v1 optimizer."""

    row: neighbours.Neighbour
    formulas: dict = {}  # {v1 name of a slot: its `SlotFormula`}; without an entry, `SAME`
    # {v1 name of a slot: a v1 argument}. If the argument is 0 or False, the slot has no effect, and
    # Keras may lack the slot.
    factors: dict = {}
    # {v1 shared variable, such as "beta1_power": the v1 argument of which the variable is a power}.
    # Keras computes the power from `iterations`.
    powers: dict = {}
    never_zero: tuple = ()  # the arguments that are `SMALLEST` instead of 0 in Keras 2
    # {a kind of training, or (kind, `api`): why the two optimizers differ in it}
    why: dict = {}
    start: Optional[str] = None  # why the two optimizers differ if no state is translated

    def slots(self, api: str) -> Dict[str, str]:
        """Returns a dict from the slots' names in v1 to their names in Keras 2 or 3."""
        position = -1 if api == "keras3" else 0  # (name,) or (name in Keras 2, name in Keras 3)
        return {name: names[position] for name, names in self.row.slots.items()}

    def formula(self, slot: str) -> SlotFormula:
        """Returns the `SlotFormula` of a slot, by its name in v1."""
        return self.formulas.get(slot, SAME)

    def settings(self, v1_arguments: Mapping[str, Any], api: str) -> Dict[str, Any]:
        """Returns the arguments of the Keras class, without the learning rate."""
        settings = {}
        for name, source in self.row.arguments.items():  # the name of a v1 argument, or a constant
            value = v1_arguments.get(source) if isinstance(source, str) else source  # None means 0
            settings[name] = value if isinstance(value, bool) else float(value or 0.0)
            if api == "optimizer_v2" and name in self.never_zero and not value:
                settings[name] = SMALLEST
        return settings

    def reason(self, kind: str, api: str) -> Optional[str]:
        """Returns why the two optimizers may differ in a kind of training; None if unknown."""
        return self.why.get((kind, api), self.why.get(kind))


_SQUARES = (
    "Keras 3 adds the squares of the gradients of an id; v1 squares the sum of these gradients"
)
_LARGEST = "Keras 3 takes the largest of the gradients of an id; v1 takes their sum"
_AVERAGES = "Keras 3 decays the averages of rows that are not in a batch; v1 does not decay them"
_MOVES = "in Keras 3 momentum moves rows that are not in a batch; v1 leaves these rows unchanged"
_OVERWRITES = "Keras 3 sets rows that were in no batch yet to 0; v1 leaves these rows unchanged"
_LAZY = "Keras' Adam moves rows that are not in a batch; LazyAdam leaves these rows unchanged"
_VELOCITY_HOLDS_RATES = (
    "v1 multiplies the momentum by the current learning rate; Keras' velocity contains the "
    "learning rate of each past step. After a change, the old learning rate fades out of the "
    "velocity, by the factor momentum in each step"
)
CLIPS = "Keras clips the gradients of an id one by one; bridged optimizers clip their sum"

_ADAM: Any = {
    "powers": {"beta1_power": "beta1", "beta2_power": "beta2"},
    "never_zero": ("epsilon",),
    "why": {(REPEATED, "keras3"): _SQUARES},
}
_LAZY_ADAM = dict(_ADAM, why={ROWS: _LAZY, (REPEATED, "keras3"): _SQUARES})
_ADAGRAD: Any = {"never_zero": ("epsilon",), "why": {(REPEATED, "keras3"): _SQUARES}}
_DIFFERENCES: Any = {
    "MomentumOptimizer": {
        "formulas": {"momentum": VELOCITY},
        "factors": {"momentum": "momentum"},
        "why": {(ROWS, "keras3"): _MOVES, RATE: _VELOCITY_HOLDS_RATES},
    },
    "AdamOptimizer": _ADAM,
    "LazyAdamOptimizer": _LAZY_ADAM,
    # AdamGS and LazyAdamGS have no variables for the powers of beta. Like Keras, they compute the
    # powers from a step number.
    "AdamGSOptimizer": dict(_ADAM, powers={}),
    "LazyAdamGSOptimizer": dict(_LAZY_ADAM, powers={}),
    "AdagradOptimizer": _ADAGRAD,
    "RegAdagradOptimizer": _ADAGRAD,
    "AdadeltaOptimizer": {
        "never_zero": ("epsilon",),
        "why": {(ROWS, "keras3"): _AVERAGES, (REPEATED, "keras3"): _SQUARES},
    },
    "RMSPropOptimizer": {
        "factors": {"momentum": "momentum", "mg": "centered"},
        # With momentum 0, Keras 2 would add epsilon outside of the root, and decay the averages of
        # rows that are not in a batch. With any other momentum, Keras 2 calls v1's kernel.
        "never_zero": ("epsilon", "momentum"),
        "why": {(ROWS, "keras3"): _AVERAGES, (REPEATED, "keras3"): _SQUARES},
        "start": "v1's average of squares starts at 1, Keras' at 0: pass variables= to start at 1",
    },
    "FtrlOptimizer": {"why": {(ROWS, "keras3"): _OVERWRITES, (REPEATED, "keras3"): _SQUARES}},
    "AdaMaxOptimizer": {
        "powers": {"beta1_power": "beta1"},
        "never_zero": ("epsilon",),
        "why": {(ROWS, "keras3"): _AVERAGES + "; " + _MOVES, (REPEATED, "keras3"): _LARGEST},
    },
}
COUNTERPARTS: Any = {
    name: Counterpart(row, **_DIFFERENCES.get(name, {}))
    for name, (row,) in neighbours.of_library(neighbours.KERAS).items()
}

_DECAY = (
    "no Keras optimizer decays Adagrad's accumulator by periods. To continue without any decay, "
    "copy the slot 'accumulator' into a bridged optimizer, to_keras(AdagradOptimizer(…)), and "
    "translate the bridged optimizer"
)
_PROXIMAL = "no Keras optimizer makes proximal updates: l1 and l2 of Ftrl work differently"
_DECOUPLED = (
    "it multiplies the weights by 1 - weight_decay (only touched rows if the gradient is sparse). "
    "Keras multiplies its weight decay by the learning rate, and applies it to all rows. With "
    "dense gradients and a constant learning rate, a new Keras optimizer with "
    "weight_decay / learning_rate as its weight_decay computes the same"
)
_SIGN = "no Keras optimizer uses the signs of gradient and momentum"
# A dict from the name of a class without a counterpart to the reason why it has none.
WITHOUT_COUNTERPART: Any = {
    "AdagradDecayOptimizer": _DECAY,
    "AdagradDecayOptimizerV2": _DECAY,
    "AdagradDAOptimizer": "Keras has no dual averaging: v1 computes the weights in each step "
    "from the sum of all gradients",
    "ProximalGradientDescentOptimizer": _PROXIMAL,
    "ProximalAdagradOptimizer": _PROXIMAL,
    "NadamOptimizer": "Keras' Nadam increases its momentum by a schedule, which v1's Nadam does "
    "not have; the results differ much within ten steps",
    "AdamWOptimizer": _DECOUPLED,
    "MomentumWOptimizer": _DECOUPLED,
    "AddSignOptimizer": _SIGN,
    "PowerSignOptimizer": _SIGN,
    "AdamAsyncOptimizer": "each variable counts its own steps in powers of beta; Keras' Adam has "
    "one step count for all variables",
    "AdamWeightDecayOptimizer": "it has no bias correction, but Keras' AdamW has one: their first "
    "updates differ by the factor (1 - beta_1) / sqrt(1 - beta_2)",
    "COCOBOptimizer": "every Keras optimizer has a learning rate",
    "ConditionalGradientOptimizer": "no Keras optimizer keeps weights in a ball",
    "DiffGradOptimizer": "no Keras optimizer makes smaller updates where the gradient changes "
    "little",
    "LionOptimizer": "Keras' Lion also moves rows that are not in a batch, and is no OptimizerV2. "
    "With dense gradients, a new Lion with the same arguments is the same up to rounding",
    "RectifiedAdamOptimizer": "no Keras optimizer rectifies the variance of the second moment",
    "AdaBeliefOptimizer": "no Keras optimizer has the squared difference of gradient and momentum "
    "as second moment",
    "NovoGradOptimizer": "no Keras optimizer divides gradients by an average of their norms",
    "YogiOptimizer": "no Keras optimizer bounds the changes of the second moment",
    "LARSOptimizer": "no Keras optimizer scales Momentum's learning rate by the norms of a "
    "variable and its gradient",
    "LAMBOptimizer": "Keras' Lamb applies its weight decay outside of the update whose norm it "
    "computes, and Keras 2 has no Lamb. Without weight decay, a new Lamb with the same arguments "
    "computes the same unless ids repeat",
    "AdafactorOptimizer": "Keras' Adafactor has other slots, no momentum, and no choice of the "
    "decay rate. With the defaults a new Adafactor(0.01) computes the same unless ids "
    "repeat",
    "ShampooOptimizer": "no Keras optimizer preconditions gradients with roots of matrices",
}


def counterpart_of(cls: Any) -> Counterpart:
    """Returns the `Counterpart` of a v1 class, or raises a ValueError that says why it has none."""
    name = cls.__name__
    is_of_library = any(getattr(home, name, None) is cls for home in serialization._homes())
    if is_of_library and name in COUNTERPARTS:
        return COUNTERPARTS[name]
    if is_of_library:
        why = WITHOUT_COUNTERPART.get(name, "no Keras optimizer computes the same updates")
    elif issubclass(cls, legacy_opt.DecoupledWeightDecayExtension):
        why = _DECOUPLED
    else:
        why = "it is your own class"
        parents = [base.__name__ for base in cls.__mro__[1:] if base.__name__ in COUNTERPARTS]
        if parents and issubclass(cls, inspection.BASE):
            why += f", and may compute something else than {parents[0]}, from which it is derived"
    raise ValueError(
        f"{name} has no counterpart among Keras' own optimizers: {why}. Keep using {name}, "
        "bridged by to_keras."
    )


def v1_arguments(bridged: Any) -> Dict[str, Any]:
    """Returns the current arguments of the v1 optimizer in `bridged` (made by `to_keras`)."""
    cls = bridged._v1.original_class
    defaults = {
        name: parameter.default
        for name, parameter in inspection.parameters_of(cls).items()
        if parameter.default is not parameter.empty
    }
    # The present arguments, as get_config would save them.
    saved = configuration.with_v1({}, bridged._v1, bridged._adapter.keras)
    return dict(defaults, **saved["optimizer"]["config"])
