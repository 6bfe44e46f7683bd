"""What the tests of both bridges share."""

import pytest

from legacy_opt.compat.v1_optimizers import serialization
from tests.support.keras.keras_apis import api  # noqa: F401


@pytest.fixture
def registry(monkeypatch):
    """Lets a test register classes that later tests do not see."""
    monkeypatch.setattr(serialization, "_registered", dict(serialization._registered))
