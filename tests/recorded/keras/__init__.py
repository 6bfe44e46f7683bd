"""Tests recorded rules in Keras 3 on PyTorch or JAX (KERAS_BACKEND)."""

import importlib.util
import os

os.environ.setdefault("KERAS_BACKEND", "torch" if importlib.util.find_spec("torch") else "jax")
if os.environ["KERAS_BACKEND"] == "jax":
    import tests.recorded.jax  # noqa: F401 - chooses the processor and float64
