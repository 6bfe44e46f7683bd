"""Imports the fixture `api`, the Keras version that a test uses."""

from tests.support.keras.keras_apis import api  # noqa: F401
