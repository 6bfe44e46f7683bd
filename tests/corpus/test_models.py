"""Loads the Keras models of every TensorFlow, and trains the next step."""

import pytest
import tensorflow as tf

from tests.corpus import comparing
from tests.support.corpus import files, models
from tests.support.keras.keras_apis import APIS

HERE = tuple(int(number) for number in tf.__version__.split(".")[:2])
APIS_OF = {"keras2": "optimizer_v2", "keras3": "keras3"}


def numbers(text):
    return [int(number) for number in text.split(".")[:2]]


def is_older(version, keras):
    """Returns whether a file is not of a newer Keras, of which no Keras loads models."""
    if version.minor > HERE or keras != "keras3":
        return version.minor <= HERE
    return numbers(version.made["keras"]) <= numbers(APIS[keras].keras.__version__)


CELLS = [
    pytest.param(version, name, id=f"{version.name}-{name}", marks=[getattr(pytest.mark, keras)])
    for version in files.versions()
    for name in version.made["formats"]
    for keras in [name.partition(".")[0]]
    if keras in APIS_OF and is_older(version, keras)
]


@pytest.mark.every_lane
@pytest.mark.parametrize("version, name", CELLS)
def test_models_of_older_tensorflows_are_loaded_and_go_on(version, name):
    saved, later = version.states(name)
    model = models.load(APIS[APIS_OF[name.partition(".")[0]]], version.path(name))
    found = models.state(model)
    if name == "keras3.h5":  # Keras 3 reads the optimizer's state in the first step
        saved = {key: saved[key] for key in found}
    comparing.assert_same(found, saved, name)
    models.train(model, models.STEPS, models.STEPS + 1)
    comparing.assert_next(models.state(model), later, version, name)
