"""Optimizers, dtypes, shapes, ids and hyperparameters that nobody has chosen, against the oracles.

tests/project/test_fuzz.py runs a few cases; `python -m tests.fuzz --cases 100000` runs many.
"""

import os
import tempfile

from hypothesis import configuration

# What hypothesis keeps of the code that it sees does not belong beside that code.
configuration.set_hypothesis_home_dir(os.path.join(tempfile.gettempdir(), "hypothesis"))
