"""Compares optimizers with NumPy oracles for random dtypes, shapes, ids and hyperparameters.

tests/project/test_fuzz.py runs a few cases. `python -m tests.fuzz --cases 100000` runs many cases.
"""

import os
import tempfile

from hypothesis import configuration

# Keep hypothesis's cache out of the checkout.
configuration.set_hypothesis_home_dir(os.path.join(tempfile.gettempdir(), "hypothesis"))
