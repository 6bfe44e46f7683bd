"""Fixtures shared by the tests of the bridges to Keras 2 and Keras 3."""

import pytest

from legacy_opt.compat.in_keras.v1_optimizers import serialization
from tests.support.keras.keras_apis import api  # noqa: F401


@pytest.fixture
def registry(monkeypatch):
    """Restores the registry of optimizer classes after the test."""
    monkeypatch.setattr(serialization, "_registered", dict(serialization._registered))
