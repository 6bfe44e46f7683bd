"""Timing steps against each other on a machine that may be busy with other things.

All contestants live in one process and take turns: in each round everybody runs a short block of
steps, and everybody starts a round in turn. A block's time is the median of its steps; a ratio is
taken within a round, where both sides saw the same machine; the result is the median of the ratios
of all rounds, with quartiles as the spread.
"""

import time
from typing import NamedTuple

import numpy as np

_WARM_UP_STEPS = 5
_BLOCK_SECONDS = 0.02
_MOST_STEPS = 50
_MOST_SECONDS = 15  # for all rounds; slow steps get fewer
_FEWEST_ROUNDS = 5


class Spread(NamedTuple):
    """A median with its quartiles."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values):
        """Returns the spread of `values`."""
        lower, median, upper = np.percentile(values, [25, 50, 75])
        return cls(float(median), float(lower), float(upper))


def times(step, count):
    """Runs `count` steps. Returns a list of seconds per step."""
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


def alternate(steps, rounds):
    """Times steps in turns.

    Args:
      steps: a dict from anything to a callable that runs one step, or to an object whose
        ``times(count)`` runs several and returns the seconds that each took.
      rounds: how many blocks each of them gets; fewer if the steps are slow.

    Returns:
      A dict with the same keys: arrays ``[rounds]`` of seconds per step.
    """
    counts, round_seconds = {}, 0.0
    for key, step in steps.items():
        seconds = _block(step, _WARM_UP_STEPS)
        counts[key] = int(np.clip(_BLOCK_SECONDS / seconds, 1, _MOST_STEPS))
        round_seconds += counts[key] * seconds
    rounds = min(rounds, max(_FEWEST_ROUNDS, int(_MOST_SECONDS / round_seconds)))
    keys = list(steps)
    found = {key: [] for key in keys}
    for number in range(rounds):
        first = number % len(keys)
        for key in keys[first:] + keys[:first]:
            found[key].append(_block(steps[key], counts[key]))
    return {key: np.array(blocks) for key, blocks in found.items()}
