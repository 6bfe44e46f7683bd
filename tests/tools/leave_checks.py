"""What the checks of recorded rules in other libraries have in common.

They run as programs, which import this module from their folder: the package `tests` needs
TensorFlow.
"""

import sys

import numpy as np

from legacy_opt import recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import NumpyOptimizer


def refused(problem, function, *args, **kwargs):
    """Checks that a call raises a ValueError with some words."""
    try:
        function(*args, **kwargs)
    except ValueError as error:
        assert problem in str(error), error
    else:
        raise AssertionError(problem)


def run(checks):
    """Runs functions; only those that arguments of the program name, if they name some."""
    chosen = [check for check in checks if check.__name__ in sys.argv]
    for check in chosen or checks:
        check()
        print(f"{check.__name__} passed", flush=True)


def own_trainings(names):
    """Trains rules 3000 steps, and then 100.

    Args:
      names: the names of recorded optimizers.

    Yields:
      For each rule its name, the state after 3000 steps, its momentum, if there is one, as a dict
      of arguments, the gradients of the last steps, and a function that checks the weights after.
    """
    draw = np.random.RandomState(0)
    for name in names:
        record = recorded.load(name)
        momentum = {"momentum": 0.9} if "momentum" in record.hyperparameters else {}
        weights = {"w": draw.randn(4, 3).astype("f4")}
        optimizer = NumpyOptimizer(record, weights, **momentum)
        gradients = [draw.randn(4, 3).astype("f4") for _ in range(3100)]
        for gradient in gradients[:3000]:
            optimizer.step({"w": gradient})
        state = state_files.state_of(optimizer)
        for gradient in gradients[3000:]:
            optimizer.step({"w": gradient})

        def check(found, name=name, end=weights["w"], start=state.variables["w"]):
            assert np.abs(found - end).max() < 1e-4 * np.abs(end - start).max(), name

        yield name, state, momentum, gradients[3000:], check


def new_state(name, steps=0, scale=1.0):
    """Returns the state of a recorded optimizer after some steps with gradients of this scale."""
    draw, weights = np.random.RandomState(0), {"w": np.zeros((4, 3), np.float32)}
    optimizer = NumpyOptimizer(recorded.load(name), weights)
    for _ in range(steps):
        optimizer.step({"w": (scale * draw.randn(4, 3)).astype("f4")})
    return state_files.state_of(optimizer)


def check_grades(grade_of):
    """Checks that the worst case decides on a grade, and is named."""
    late = new_state("AdamOptimizer", 3000)
    for scale in (1.0, 1e-6, 1e-7):
        refused("with gradients of ", grade_of, new_state("AdamOptimizer", 10, scale))
    assert "with gradients of 1e-07)" in str(grade_of(late)), grade_of(late)
    refused("and a falling rate", grade_of, new_state("AdamWOptimizer", 3000))
    unusual = new_state("AdadeltaOptimizer", 100, 1e-3)
    assert grade_of(unusual).name == "exact" and grade_of(unusual).case


def with_other_hyperparameters():
    """Trains each rule of the catalogue with other values of all hyperparameters.

    Yields:
      For each rule its record, the hyperparameters, the gradients, and the weights after them.
    """
    draw = np.random.RandomState(0)
    for name in recorded.catalogue():
        record = recorded.load(name)
        values = [0.5, 0.625, 0.375, 0.75, 0.875]
        hyper = {each: values[i % 5] for i, each in enumerate(sorted(record.hyperparameters))}
        if "learning_rate_power" in hyper:
            hyper["learning_rate_power"] = -0.625
        gradients = [draw.randn(4, 3).astype("f4") for _ in range(4)]
        weights = {"w": np.ones((4, 3), "f4")}
        optimizer = NumpyOptimizer(record, weights, **hyper)
        for gradient in gradients:
            optimizer.step({"w": gradient})
        yield record, hyper, gradients, weights["w"]
