"""NaN and infinity in the files of Keras 3; test_non_finite_files.py has the other files."""

import numpy as np
import pytest

from tests.support.keras import keras3_saving as saving
from tests.support.keras.keras_apis import KERAS_3
from tests.support.spoiled_files import spoiled

bridged = KERAS_3.bridged

pytestmark = pytest.mark.keras3


@pytest.mark.parametrize("way", saving.WAYS)
def test_files(way, tmp_path):
    make = saving.MAKERS["Adam"]
    model = saving.compiled(bridged(make(None)))
    saving.train(model, 0, 1)
    model.set_weights([spoiled(value) for value in model.get_weights()])
    for variable in model.optimizer.variables:
        if variable is not model.optimizer.learning_rate:
            variable.assign(spoiled(variable.numpy()))
    expected, _ = saving.state(model)
    save, load = saving.WAYS[way]
    save(model, tmp_path)
    found, _ = saving.state(load(tmp_path, lambda step: bridged(make(step))))
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
