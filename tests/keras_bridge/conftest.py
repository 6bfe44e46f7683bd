"""What the tests of both bridges share."""

import pytest

from legacy_opt.compat import config
from tests.support.keras.keras_apis import api  # noqa: F401


@pytest.fixture
def registry(monkeypatch):
    """Lets a test register classes that later tests do not see."""
    monkeypatch.setattr(config, "_registered", dict(config._registered))
