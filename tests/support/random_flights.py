"""Random flights for tests, because reading the real flights takes seconds."""

import sys

import numpy as np

from tests.support.paths import EXAMPLES

sys.path.insert(0, str(EXAMPLES))

from flights.data import Flights

VOCABULARY = 20


def random_flights(size):
    """Returns `Flights` of one month, with 3 id columns and 2 numeric columns."""
    random = np.random.RandomState(0)
    return Flights(
        ids=random.randint(0, VOCABULARY, [size, 3]).astype(np.int32),
        dense=random.rand(size, 2).astype(np.float32),
        late=random.randint(0, 2, size).astype(np.float32),
        month=np.ones(size, np.int8),
        time=np.zeros(size, "datetime64[s]"),
        vocabulary_size=VOCABULARY,
    )
