"""The Keras that a test is about."""

import pytest

from tests.support.keras.keras_apis import APIS, MARKS


@pytest.fixture(params=[pytest.param(name, marks=MARKS[name]) for name in APIS])
def api(request):
    """A Keras API that this TensorFlow has."""
    return APIS[request.param]
