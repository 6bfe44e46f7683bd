"""Trains problems with recorded rules in NumPy."""

from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from tests.support import problems, running


def as_rows(gradients):
    """Returns the gradients of a step of a problem, as `NumpyOptimizer.step` takes them."""
    return {
        name: Rows(each.ids, each.values) if isinstance(each, problems.Rows) else each
        for name, each in gradients.items()
    }


def trained(record, problem, optimizer_class=NumpyOptimizer):
    """Trains all steps of a problem; returns a `running.Trace`."""
    weights = {name: value.copy() for name, value in problem.values.items()}
    optimizer = optimizer_class(record, weights)
    steps = []
    for step in problem.gradients:
        optimizer.step(as_rows(step))
        steps.append({name: value.copy() for name, value in weights.items()})
    slots = {
        (name, slot): array
        for name, its in optimizer.state.slots.items()
        for slot, array in its.items()
    }
    return running.Trace(steps, slots)
