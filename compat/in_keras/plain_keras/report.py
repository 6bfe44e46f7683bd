"""The result of a translation between v1 optimizers and Keras' own optimizers."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from legacy_opt.core.types import KerasOptimizer

from . import measurement


class Moved(NamedTuple):
    """A slot or shared (non-slot) variable of a v1 optimizer, and its counterpart in Keras.

    Attributes:
      v1: the name of the slot or shared variable of the v1 optimizer.
      keras: the name of the slot in Keras, the formula that relates the two values, or the reason
        why Keras has no counterpart.
      exact: whether the translation keeps all bits, in both directions.
    """

    v1: str
    keras: str
    exact: bool


class TranslationReport(NamedTuple):
    """Describes a translation and its exactness; `str` formats the report.

    A translation replaces a v1 optimizer by one of Keras' own optimizers, or the reverse.

    Attributes:
      v1: the name of the v1 optimizer's class.
      keras: the name of the Keras optimizer's class, with its module.
      settings: a dict of the Keras optimizer's arguments, with the current learning rate.
      variables: the number of variables whose state was translated.
      iterations: how many training steps have been done.
      state: a tuple of `Moved`; empty if no state was translated.
      measurements: a tuple of `Measurement`, one for each kind of training.
    """

    v1: str
    keras: str
    settings: Dict[str, Any]
    variables: int
    iterations: int
    state: Tuple[Moved, ...]
    measurements: Tuple[measurement.Measurement, ...]

    @property
    def grade(self) -> str:
        """The worst grade of the measurements whose `counts` is True."""
        counted = [each.grade for each in self.measurements if each.counts]
        return max(counted, key=measurement.GRADES.index)

    def __str__(self) -> str:
        settings = ", ".join("{}={}".format(*item) for item in sorted(self.settings.items()))
        state = "no state was translated, because the optimizer has no variables yet"
        if self.variables:
            state = f"state of {self.variables} variables after {self.iterations} steps"
        lines = [f"{self.v1} as {self.keras}({settings}): {self.grade}", state]
        for part in self.state:
            note = "" if part.exact else ", up to rounding"
            lines.append(f"  {part.v1}: {part.keras}{note}")
        steps = measurement.STEPS
        lines.append(f"largest difference in {steps} steps, and how far the weights moved at most:")
        for each in self.measurements:
            lines.append(f"  {each}")
            if each.why:
                lines.append("    " + each.why)
        return "\n".join(lines)


class Translation:
    """The new optimizer that a translation has made, and a report.

    Attributes:
      optimizer: the new optimizer.
    """

    def __init__(
        self, optimizer: KerasOptimizer, make_report: Callable[[], TranslationReport]
    ) -> None:
        self.optimizer = optimizer
        self._make_report = make_report
        self._report: Optional[TranslationReport] = None

    @property
    def report(self) -> TranslationReport:
        """A `TranslationReport`. The first access measures the grade by training two optimizers."""
        if self._report is None:
            self._report = self._make_report()
        return self._report

    @property
    def grade(self) -> str:
        """The measured exactness of the translation: "exact", "rounding" or "differs"."""
        return self.report.grade
