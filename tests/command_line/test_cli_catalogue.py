"""Tests of `legacy-opt convert` from Keras checkpoints to v1 checkpoints, with each optimizer.

In a bridged training, the optimizer is a Keras optimizer that `to_keras` made.
"""

import pytest
import tensorflow as tf

from tests.support.checkpoints import v1_checkpoints as training
from tests.support.checkpoints.v1_checkpoint_cases import problem_for, way_of
from tests.support.checkpoints.v1_checkpoints import AFTER, BEFORE, assert_equal
from tests.support.keras.keras_cases import OURS
from tests.support.processes.command_line import Screen, forget_module

FIRST = {case.optimizer: name for name, case in reversed(list(OURS.items()))}
# Without --full, only these optimizers are tested. Their slots have unusual names, or shapes that
# differ from the variable's shape.
DAILY = ("AdagradDecayV2", "Adafactor", "AdamAsync", "LAMB", "Shampoo")
NAMES = [
    pytest.param(number, name, marks=() if name.startswith(DAILY) else pytest.mark.full)
    for number, name in enumerate(FIRST.values())
]
USERS_MODULE = """
from tests.support.keras.keras_cases import OURS
def make():
    return OURS[%r].make(None)
"""


@pytest.mark.parametrize("number, name", NAMES)
def test_a_bridged_training_continues_in_a_session(tmp_path, capsys, monkeypatch, number, name):
    module = f"user_{number}"
    (tmp_path / (module + ".py")).write_text(USERS_MODULE % name)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_module(module, monkeypatch)
    case, (way, config) = OURS[name], way_of(name)
    api = training.APIS[number % len(training.APIS)]
    keras = training.KerasTraining(problem_for(case), case.make, api, start=1)
    keras.train(0, BEFORE, way)
    saved = tf.train.Checkpoint(optimizer=keras.optimizer, **keras.variables)
    source = saved.save(str(tmp_path / "keras"))

    words = ("convert", source, tmp_path / "v1", "--optimizer", module + ":make")
    assert Screen(capsys).json(*words)["complete"]
    found = training.continued_in_v1(tmp_path / "v1", keras.problem, case.make, config=config)
    restored, after, _ = found
    assert_equal(restored, keras.state())
    training.assert_same_steps(after, keras.train(BEFORE, BEFORE + AFTER, way))
