"""Collects these tests only where TensorFlow Addons is installed: in `make addons`."""

import importlib.util
import warnings

collect_ignore_glob = []
if importlib.util.find_spec("tensorflow_addons") is None:
    collect_ignore_glob += ["test_*.py"]
else:
    with warnings.catch_warnings():  # its import warns that Addons is no longer maintained
        warnings.simplefilter("ignore")
        import tensorflow_addons  # noqa: F401
