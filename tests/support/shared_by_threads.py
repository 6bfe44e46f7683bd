"""Trains with one optimizer in several threads, of which each has variables of its own."""

import sys
import threading
import time

import numpy as np
import tensorflow as tf

from tests.support import problems, running, threads

THREADS = 4
STEPS = 4
_local = threading.local()


def number_of_thread():
    """Returns the number of the thread, one of those that `each_number` has started."""
    return _local.number


def each_number(function, at_once):
    """Calls a function with the numbers 0, 1, …, each in a thread of its own; returns the results.

    Args:
      function: the function.
      at_once: whether the threads run at once, not one after the other. If so, Python switches
        between them as often as it can.
    """
    results, numbers = [None] * THREADS, iter(range(THREADS))

    def run():
        _local.number = next(numbers)
        results[_local.number] = function(_local.number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(1 if at_once else THREADS):
            threads.in_threads(run, THREADS if at_once else 1)
    finally:
        sys.setswitchinterval(before)
    return results


class Own:
    """The variables of one thread, and their gradients.

    Args:
      number: the number of the thread.
      kind: "dense", "sparse" or "duplicates".
    """

    def __init__(self, number, kind="dense"):
        self.problem = problems.make(kind, steps=STEPS, seed=number)
        self.variables = {
            name: tf.Variable(value, name=f"{name}_{number}")
            for name, value in self.problem.values.items()
        }

    def pairs(self, gradients):
        """Returns (gradient, variable) pairs; for the arguments, see `running.plain`."""
        return running._as_gradients(self.problem, gradients, self.variables)

    def steps(self):
        """Yields the gradients of each step as tensors."""
        for gradients in self.problem.gradients:
            yield tf.nest.map_structure(tf.constant, running._plain(gradients))

    def state(self, optimizer):
        """Returns the values of the variables and their slots."""
        slots = running.slots_of(optimizer, self.variables)
        return {name: each.numpy() for name, each in {**self.variables, **slots}.items()}


def noting(base, method, in_mixin=False):
    """Returns a subclass, whose own method notes the number of the thread in an attribute.

    Args:
      base: the class of the optimizer.
      method: the method, "minimize" or "apply_gradients".
      in_mixin: whether a mixin, which is no optimizer, defines the method.
    """

    def note(self, *args, **kwargs):
        self.noted = number_of_thread()
        time.sleep(1e-4)  # the other threads go on
        return getattr(super(owner, self), method)(*args, **kwargs)

    owner = type("Noting", () if in_mixin else (base,), {method: note})
    return type("Mixed", (owner, base), {}) if in_mixin else owner


def trained(optimizer, number, kind="dense", call=lambda apply, own: apply):
    """Trains in eager code; returns `Own.state`.

    Args:
      optimizer: the optimizer that the threads share.
      number: the number of the thread.
      kind: see `Own`.
      call: a function that takes `apply`, which applies gradients, and the `Own`; it returns the
        function to call with the gradients in each step.
    """
    own = Own(number, kind)
    step = call(lambda gradients: optimizer.apply_gradients(own.pairs(gradients)), own)
    for gradients in own.steps():
        step(gradients)
    return own.state(optimizer)


def compare(make, train=trained):
    """Compares threads that run at once with threads that run one after the other, bit for bit.

    If all variables share other variables, such as Adam's powers, only these are compared, because
    the variables depend on the order of all steps.

    Args:
      make: a function that returns a new optimizer, or a list of optimizers for `train`.
      train: a function of the result of `make` and the number of a thread; it returns a dict of
        arrays.
    """
    at_once, in_turn = make(), make()
    actual = each_number(lambda number: train(at_once, number), at_once=True)
    expected = each_number(lambda number: train(in_turn, number), at_once=False)
    if shared(in_turn):
        actual, expected = [shared(at_once)], [shared(in_turn)]
    for one, other in zip(actual, expected):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], str(name))


def shared(optimizer):
    """Returns the values of the variables that all steps of an optimizer update."""
    variables = getattr(optimizer, "_non_slot_dict", {})  # none if `optimizer` is a list of them
    return {name: each.numpy() for (name, _), each in variables.items()}
