"""Judges whether an implementation computes the same as a rule."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional

import numpy as np

from legacy_opt.recorded.proofs.proof import Arrays, End, ProofError

EQUAL, ROUNDING, DIFFERS = "EQUAL", "ROUNDING", "DIFFERS"
# The largest error that rounding explains, as a multiple of the error bar. In 305 trainings with
# the same formula the largest was 2.2, and with another formula the smallest was 3.6.
BOUND = 8.0
# The same for a training in float64, where rounding is far below the bars. Classes that compute
# parts in float32 come to 1.1 there.
WIDE_BOUND = 3.0


class Error(NamedTuple):
    """The largest error of an implementation, as a multiple of the error bar.

    Attributes:
      ratio: this multiple; inf if only one of both is finite.
      step: the first step, counted from 1, in which an error is larger than the bound, else the
        step of the largest error.
      variable: the name of the variable in which it is.
    """

    ratio: float
    step: int
    variable: str


class Verdict(NamedTuple):
    """Whether an implementation computes the same as a rule.

    Attributes:
      name: "EQUAL": all values are the same; "ROUNDING": the formula is the same, and some last
        digits differ; "DIFFERS": it is another formula.
      error: the largest `Error` in float32.
      wide: the largest `Error` in float64, or None.
    """

    name: str
    error: Error
    wide: Optional[Error] = None

    @property
    def place(self) -> Error:
        """The error that decided."""
        if self.wide is None or self.wide.ratio <= WIDE_BOUND or self.error.ratio > BOUND:
            return self.error
        return self.wide

    def __str__(self) -> str:
        if self.name == EQUAL:
            return EQUAL
        ratio, step, variable = self.place
        limit, other = f"{BOUND:g}", ""
        if self.place is self.wide:
            limit = f"{WIDE_BOUND:g} in float64"
        elif self.wide is not None and self.name == ROUNDING:
            other = f"; in float64, {self.wide.ratio:.2g} of at most {WIDE_BOUND:g}"
        return (
            f"{self.name}: in step {step}, {variable!r} is {ratio:.3g} error bars away "
            f"(rounding: at most {limit}{other})"
        )


def judge(
    ends: Mapping[int, End],
    found: Mapping[int, Arrays],
    found_in_float64: Optional[Mapping[int, Arrays]] = None,
) -> Verdict:
    """Judges the variables of an implementation.

    Args:
      ends: the ends of the proof, by step.
      found: the variables after these steps, in float32.
      found_in_float64: the same of a training in float64, or None. It tells formulas apart that
        float32 cannot.

    Raises:
      ProofError: a variable is missing, or has another shape.
    """
    wide = None
    if found_in_float64 is not None:
        wide = largest_error(ends, found_in_float64, WIDE_BOUND, "exact")
    verdict = Verdict(ROUNDING, largest_error(ends, found), wide)
    if all(
        np.all(_same(values, found[step][name]))
        for step, end in ends.items()
        for name, values in end.values.items()
    ):
        return verdict._replace(name=EQUAL)
    bound = BOUND if verdict.place is verdict.error else WIDE_BOUND
    return verdict if verdict.place.ratio <= bound else verdict._replace(name=DIFFERS)


def largest_error(
    ends: Mapping[int, End],
    found: Mapping[int, Arrays],
    bound: float = BOUND,
    field: str = "values",
) -> Error:
    """Returns the first error larger than `bound`, else the largest; see `judge`.

    The `field` of `End` says where there are infinities and NaN.
    """
    errors = [
        Error(ratio, step, name)
        for name, ratios in drift(ends, found, field).items()
        for step, ratio in ratios.items()
    ]
    if not errors:
        raise ProofError("the proof has no ends to compare with")
    in_order = sorted(errors, key=lambda each: each.step)
    return next((each for each in in_order if each.ratio > bound), max(in_order))


def drift(
    ends: Mapping[int, End], found: Mapping[int, Arrays], field: str = "values"
) -> Dict[str, Dict[int, float]]:
    """Returns the largest error of each variable after each step, as a multiple of the error bar.

    The result is a dict from names of variables to dicts from steps; see `judge`.
    """
    ratios: Dict[str, Dict[int, float]] = {}
    for step, end in sorted(ends.items()):
        for name, exact in end.exact.items():
            array = found.get(step, {}).get(name)
            shape, got = list(exact.shape), None if array is None else list(array.shape)
            if got != shape:
                raise ProofError(
                    f"after step {step}, {name!r} must have the shape {shape}, got {got}"
                )
            ratio = _ratio(getattr(end, field)[name], exact, end.bars[name], array)
            ratios.setdefault(name, {})[step] = ratio
    return ratios


def _ratio(expected: np.ndarray, exact: np.ndarray, bars: np.ndarray, found: Any) -> float:
    with np.errstate(all="ignore"):
        exact = np.where(np.isfinite(exact), exact, expected)
        distance = np.abs(found.astype("float64") - exact)
        error = np.where(distance == 0, 0.0, distance / bars)  # a bar may be 0
        unequal = np.where(_same(expected, found), 0.0, np.inf)
    is_finite = np.isfinite(expected) & np.isfinite(found)
    return float(np.max(np.where(is_finite, error, unequal), initial=0.0))


def _same(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one == other) | (np.isnan(one) & np.isnan(other))
