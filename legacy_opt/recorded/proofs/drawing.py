"""Draws proofs: inputs with which different formulas give different results.

Most differences hide from normal numbers and default hyperparameters. So weights begin at zero,
where all bits of an update are visible; gradients have several sizes, around epsilon and far above
it; hyperparameters are short binary numbers, exact in each dtype; and the learning rate changes.
"""

from __future__ import annotations

import math
from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional, Tuple

import numpy as np

from legacy_opt.recorded.arrays.interpreter import given_hyperparameters
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from legacy_opt.recorded.proofs.edits import power as measured_power
from legacy_opt.recorded.proofs.proof import MOST_STEPS, Arrays, Gradient, Proof, ProofError
from legacy_opt.recorded.proofs.reference import with_ends
from legacy_opt.recorded.records import CLIP_NORM, Record, RecordError
from legacy_opt.recorded.state_files import state_of

RATES = ("learning_rate", "lr", "rate", "step_size", "eta")  # usual names; the rate changes
# Usual names of arguments, and the hyperparameters that they may be. A comma makes a tuple.
_USUAL = """
lr=learning_rate eps=epsilon betas=beta1,beta2 betas=beta_1,beta_2 nesterov=use_nesterov
beta1=beta_1 beta_1=beta1 b1=beta1 b1=beta_1 beta2=beta_2 beta_2=beta2 b2=beta2 b2=beta_2
alpha=decay alpha=rho rho=decay decay=rho weight_decay=weight_decay_rate threshold=sma_threshold
l1_regularization_strength=l1 l2_regularization_strength=l2
l2_shrinkage_regularization_strength=l2_shrinkage
"""
USUAL = [each.split("=") for each in _USUAL.split()]
_OF_ZERO, _OF_ONE = 2.0**-5, 0.75  # values for hyperparameters that are 0 or 1, and hide their use
# Two variables have the same shape: a class may mix up their states.
_DENSE, _ROWS = {"w": (12, 8), "b": (8,), "c": (8,)}, {"table": (20, 4), "other": (20, 4)}
_MOST_ELEMENTS = 1 << 24
_SMALLEST, _LARGEST = -9, 2  # powers of 2: the sizes of gradients
_EXTREME = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-44], "float32")
# Values that show what hyperparameters do. Others are short binary numbers near the record's.
_NAMES = {
    2.0**-20: "epsilon1",
    2.0**-10: "epsilon l1",
    2.0**-9: "min_lr",
    2.0**-8: "epsilon2 l2_shrinkage",
    2.0**-7: "l2",
    2.0**-6: " ".join(RATES),
    2.0**-5: "weight_decay weight_decay_rate",
    2.0**-4: "eeta",
    0.25: "warmup_proportion",
    -0.25: "learning_rate_power",
    0.75: "logbase sign_decay",
    0.875: "beta beta1 beta_1 momentum",
    1 - 2.0**-5: "beta2 beta_2",
    4.0: CLIP_NORM,
    8.0: "total_steps",
}
_VALUES = {name: value for value, names in _NAMES.items() for name in names.split()}


def draw(
    record: Record,
    seed: int = 0,
    steps: int = 10,
    rows: bool = False,
    ends: Optional[Iterable[int]] = None,
    global_step: int = 0,
    extreme: bool = False,
    power: bool = False,
    hyperparameters: Optional[Mapping[str, float]] = None,
) -> Proof:
    """Draws a proof of a rule.

    Args:
      record: the rule, of float32.
      seed: the seed of the random numbers.
      steps: the number of steps.
      rows: whether a gradient is sparse, with repeated ids.
      ends: the steps after which results are compared; by default all.
      global_step: the number of steps before the start, for rules that change after many.
      extreme: whether some gradients are zeros, infinite, NaN or denormal.
      power: whether to measure which edits of the rule the proof notices: `made["power"]`.
      hyperparameters: values of hyperparameters instead of drawn ones, by name.

    Raises:
      ProofError: the rule has no update for such gradients, or an argument is out of range.
      RecordError: a hyperparameter is unknown, or the record does not follow its value.
    """
    if not 1 <= steps <= MOST_STEPS:
        raise ProofError(f"steps must be a number from 1 to {MOST_STEPS:,}, got {steps}")
    random = np.random.RandomState(seed)
    shapes = _shapes(record, rows)
    values = given_hyperparameters(record, {**_values(record), **(hyperparameters or {})})
    for name, value in values.items():
        if not abs(value) <= np.finfo("float32").max:
            raise ProofError(f"{name} must be a finite number of float32, got {value}")
    schedule: List[Dict[str, float]] = [dict(values) for _ in range(steps)]
    for name in set(RATES).intersection(values).difference(record.fixed):
        for each in schedule[steps // 2 + 1 :]:
            each[name] /= 2
    # Of several variables, only the last one gets extreme gradients.
    weights, gradients = inputs(
        random, shapes, [*shapes] if rows else [], steps, [*shapes][-1:] if extreme else []
    )
    start = state_of(NumpyOptimizer(record, weights, **values))._replace(global_step=global_step)
    proof = Proof(start, schedule, gradients, {}, made={"by": "draw", "seed": seed})
    proof = with_ends(proof, ends or range(1, steps + 1))
    return _with_power(proof, seed, rows) if power else proof


def _with_power(proof: Proof, seed: int, rows: bool) -> Proof:
    """Returns a proof with its power; other proofs show which edits change anything."""
    record = proof.record
    scalars = record.hyperparameters.items()
    recorded: Any = {name: each.value for name, each in scalars if each.value is not None}
    others = [
        draw(record, seed + 1, rows=rows),
        draw(record, seed + 2, rows=rows, hyperparameters=recorded),
    ]
    found = {kind: list(each) for kind, each in measured_power([proof], others).items()}
    found["all"] = [sum(each) for each in zip(*found.values())]
    return proof._replace(made={**proof.made, "power": found})


def inputs(
    random: np.random.RandomState,
    shapes: Mapping[str, Tuple[int, ...]],
    sparse: Collection[str],
    steps: int,
    extreme: Collection[str] = (),
) -> Tuple[Arrays, List[Dict[str, Gradient]]]:
    """Draws variables, and the gradients of each step.

    The variables in `sparse` have sparse gradients. Of those in `extreme`, some gradients are zero,
    infinite, NaN or denormal.
    """
    weights, sizes = {}, {}
    for name, shape in shapes.items():
        weight = random.standard_normal(shape)
        weights[name] = (weight * (random.random_sample(shape) < 0.5)).astype("float32")
    for name, shape in shapes.items():
        sizes[name] = 2.0 ** random.uniform(_SMALLEST, _LARGEST, shape)

    def gradient(name: str) -> Gradient:
        ids: Any = ...
        if name in sparse:
            ids = random.randint(0, len(weights[name]) // 2, size=12)
            ids[[3, 7]] = ids[0]
        its_sizes = sizes[name][ids]
        is_there = random.random_sample(its_sizes.shape) > 0.05
        values = (its_sizes * random.standard_normal(its_sizes.shape) * is_there).astype("float32")
        if name in extreme:
            places = np.arange(weights[name].size).reshape(weights[name].shape)[ids] % 7 == 3
            values[places] = random.choice(_EXTREME, int(places.sum()))
        return Rows(ids, values) if name in sparse else values

    return weights, [{name: gradient(name) for name in shapes} for _ in range(steps)]


def _shapes(record: Record, rows: bool) -> Mapping[str, Tuple[int, ...]]:
    named = {k: v for group in record.groups for k, v in (group.variables or {}).items()}
    found, why = {}, ""
    for name, shape in (named or (_ROWS if rows else _DENSE)).items():
        try:
            group = record.group_of(name, shape)
            program = group.sparse if rows else group.dense
        except RecordError as error:
            program = f"{error}"
        if isinstance(program, str):
            why = program
        else:
            found[name] = shape
    if not found:
        kind = "sparse" if rows else "dense"
        raise ProofError(f"{record.optimizer} has no update for {kind} gradients: {why}")
    elements = sum(float(np.prod(shape, dtype="float64")) for shape in found.values())
    if elements > _MOST_ELEMENTS:
        raise ProofError(
            f"the record is of variables with {elements:,.0f} elements: too many to draw"
        )
    return found


def _values(record: Record) -> Dict[str, float]:
    found = {}
    for name, (dtype, recorded) in record.hyperparameters.items():
        value = _VALUES.get(name)
        # An implementation may ignore a hyperparameter, so the recorded value shows nothing.
        if recorded is not None and value in (None, recorded):
            value = other_number(recorded)
        if value is not None and name not in record.fixed and dtype.startswith("float"):
            found[name] = value
    return found


def other_number(value: float) -> float:
    """Returns another number nearby with few binary digits, which is not 0 or 1."""
    if value in (0, 1):
        return _OF_ONE if value else _OF_ZERO
    if not math.isfinite(value):
        return value
    if 0.5 < value < 1:
        return 1 - other_number(1 - value)
    unit = 2.0 ** (math.floor(math.log2(abs(value))) - 2)
    near = sorted((5 * unit, 6 * unit, 7 * unit), key=lambda each: abs(each - abs(value)))
    return math.copysign(next(each for each in near if each != abs(value)), value)
