"""Defects of resumed trainings that users report, made on real objects, and sound resumes."""

from typing import NamedTuple

from legacy_opt import proofs

STEPS = 30


class Case(NamedTuple):
    """A resume, and what the first finding must say."""

    name: str
    before: object
    after: object
    variable: str
    slot: str
    cause: str
    step: int = STEPS


def judge(case):
    """Returns (the first finding or None, whether step and variable are right, the cause's grade).

    The grade is "right", "none" or "wrong".
    """
    resumed = proofs.resume(case.before, case.after)
    if not resumed.findings:
        return None, False, "none"
    first = resumed.findings[0]
    is_place = first.variable == case.variable and (
        first.slot.endswith(case.slot) or first.slot == "step"
    )
    grade = "none" if not first.cause else "right" if first.cause == case.cause else "wrong"
    return first, is_place and resumed.step == case.step, grade
