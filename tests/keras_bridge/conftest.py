"""What the tests of both bridges share."""

import pytest

from legacy_opt.compat import config
from tests.support.keras import keras_apis


@pytest.fixture(params=keras_apis.EVERY)
def api(request):
    """The Keras API that a test runs with."""
    return request.param


@pytest.fixture
def registry(monkeypatch):
    """Lets a test register classes that later tests do not see."""
    monkeypatch.setattr(config, "_registered", dict(config._registered))
