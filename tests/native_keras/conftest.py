"""The fixture `api`: Keras 2 or Keras 3."""

from tests.support.keras.keras_apis import api  # noqa: F401
