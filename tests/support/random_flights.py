"""Random flights, for tests that need no real ones: reading those takes seconds."""

import sys

import numpy as np

from tests.support.paths import EXAMPLES

sys.path.insert(0, str(EXAMPLES))

from flights.data import Flights

VOCABULARY = 20


def random_flights(size):
    """Returns `Flights` of one month with 3 fields and 2 features."""
    random = np.random.RandomState(0)
    return Flights(
        ids=random.randint(0, VOCABULARY, [size, 3]).astype(np.int32),
        dense=random.rand(size, 2).astype(np.float32),
        late=random.randint(0, 2, size).astype(np.float32),
        month=np.ones(size, np.int8),
        time=np.zeros(size, "datetime64[s]"),
        vocabulary_size=VOCABULARY,
    )
