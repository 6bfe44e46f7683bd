"""Names of NumPy, SciPy and Python that old scripts use, and that newer versions lack."""

from . import table

# Names that `legacy-opt run` gives back, although no name replaces them.
GIVEN_BACK = {
    *("numpy.NINF", "numpy.alen", "numpy.asfarray", "numpy.asscalar", "numpy.cast", "numpy.in1d"),
    *("numpy.msort", "inspect.getargspec"),
}
NAMES = table.rows("libraries.txt")
# Modules whose names are in another module now: {old: new}.
MODULES = {row.modules[0]: row.now for row in NAMES if not row.names}
