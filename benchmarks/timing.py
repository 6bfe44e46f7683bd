"""Compares the time of steps on a machine that may be busy with other work.

A contestant is an optimizer that trains a workload. In each round, every contestant runs a short
block of steps. Each round starts with a different contestant. A block's time is the median of the
times of its steps. A ratio is computed from two times of the same round, because both were measured
under about the same load. The result is the median of the ratios of all rounds, with the quartiles.
"""

import time
from typing import NamedTuple

import numpy as np

_WARM_UP_STEPS = 5
_BLOCK_SECONDS = 0.02
_MOST_STEPS = 50
_MOST_SECONDS = 15  # for all rounds; if steps are slow, fewer rounds are run
_FEWEST_ROUNDS = 5


class Spread(NamedTuple):
    """A median with its quartiles."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values):
        """Returns the median and the quartiles of `values`."""
        lower, median, upper = np.percentile(values, [25, 50, 75])
        return cls(float(median), float(lower), float(upper))


def times(step, count):
    """Runs `count` steps; returns a list with the seconds of each step."""
    if hasattr(step, "times"):
        return step.times(count)
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def _block(step, count):
    """Returns the median time of `count` steps, in seconds."""
    return np.median(times(step, count))


def alternate(steps, rounds, most_steps=_MOST_STEPS):
    """Times the steps of several contestants in turns.

    Args:
      steps: a dict from a contestant's key to a callable that runs one step, or to an object whose
        ``times(count)`` runs `count` steps and returns a list with the seconds of each step.
      rounds: the number of blocks per contestant. If the steps are slow, fewer blocks are run.
      most_steps: the largest number of steps of a block.

    Returns:
      A dict from the same keys to arrays. An array has the median seconds per step of each block.
    """
    counts, round_seconds = {}, 0.0
    for key, step in steps.items():
        seconds = _block(step, _WARM_UP_STEPS)
        counts[key] = int(np.clip(_BLOCK_SECONDS / seconds, 1, most_steps))
        round_seconds += counts[key] * seconds
    rounds = min(rounds, max(_FEWEST_ROUNDS, int(_MOST_SECONDS / round_seconds)))
    keys = list(steps)
    found = {key: [] for key in keys}
    for number in range(rounds):
        first = number % len(keys)
        for key in keys[first:] + keys[:first]:
            found[key].append(_block(steps[key], counts[key]))
    return {key: np.array(blocks) for key, blocks in found.items()}
