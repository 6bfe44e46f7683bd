"""The Keras that a test is about."""

from tests.support.keras.keras_apis import api  # noqa: F401
