"""The Keras that a test is about."""

import pytest

from tests.support.keras import keras_apis


@pytest.fixture(params=keras_apis.EVERY)
def api(request):
    """The Keras API that a test runs with."""
    return request.param
