"""Builds the operations library, as for the tests of native kernels.

The tests in torch/, jax/ and keras/ run in environments without TensorFlow: see `make leave`.
"""

import importlib.util

collect_ignore = []
if importlib.util.find_spec("tensorflow"):
    from tests.native.conftest import kernels_folder  # noqa: F401 - a fixture

    collect_ignore += ["torch", "jax", "keras"]
