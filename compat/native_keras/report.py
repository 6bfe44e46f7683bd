"""What a translation between v1 and Keras' own optimizers returns."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Tuple

from legacy_opt.core.types import KerasOptimizer

from . import measurement


class Moved(NamedTuple):
    """What became of a part of the state.

    Attributes:
      v1: the slot or shared variable of v1.
      keras: the slot of Keras, or its formula.
      exact: whether no bit is lost, there or back.
    """

    v1: str
    keras: str
    exact: bool


class TranslationReport(NamedTuple):
    """What a translation did, and how well; `str` of it is for people.

    Attributes:
      v1: the name of the v1 optimizer's class.
      keras: the name of the Keras optimizer's class, with its module's.
      settings: a dict of the Keras optimizer's arguments, the learning rate as it is now.
      variables: how many variables' state was translated; 0 if there was none.
      iterations: how many steps have been done.
      state: a tuple of `Moved`; empty if there was none.
      figures: a tuple of `Figure`, one for each kind of training.
    """

    v1: str
    keras: str
    settings: Dict[str, Any]
    variables: int
    iterations: int
    state: Tuple[Moved, ...]
    figures: Tuple[measurement.Figure, ...]

    @property
    def grade(self) -> str:
        """The worst grade among the figures that count."""
        return measurement.worst(self.figures)

    def __str__(self):
        settings = ", ".join("{}={}".format(*item) for item in sorted(self.settings.items()))
        lines = [
            f"{self.v1} as {self.keras}({settings}): {self.grade}",
            f"state of {self.variables} variables after {self.iterations} steps"
            if self.variables
            else "no state: no variables are known yet",
        ]
        for part in self.state:
            note = "" if part.exact else ", up to rounding"
            lines.append(f"  {part.v1}: {part.keras}{note}")
        lines.append(f"largest difference in {measurement.STEPS} steps:")
        for figure in self.figures:
            lines.append(f"  {figure}")
            if figure.why:
                lines.append("    " + figure.why)
        return "\n".join(lines)


class Translation(NamedTuple):
    """An optimizer that was translated.

    Attributes:
      optimizer: what it became.
      grade: "exact" (bit for bit), "rounding" or "differs", as measured.
      report: a `TranslationReport`: the figures, and why.
    """

    optimizer: KerasOptimizer
    grade: str
    report: TranslationReport
