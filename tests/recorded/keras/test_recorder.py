"""Tests that `Recorder` records trainings of Keras 3."""

import keras
import numpy as np

from legacy_opt import proofs, recorded
from legacy_opt.recorded.keras import RecordedOptimizer
from tests.recorded.references import refused


def trained(optimizer, folder, **options):
    """Returns the proof of a training that was written and read."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", run_eagerly=True)
    recorder = proofs.Recorder(optimizer, {"first": model.layers[0].kernel}, **options)
    inputs = np.random.RandomState(0).randn(24, 3)
    model.fit(inputs, inputs[:, :1], batch_size=8, epochs=2, verbose=0)
    recorder.write(folder / "run.proof")
    (proof,) = proofs.read_run(folder / "run.proof").proofs.values()
    assert "first" in proof.start.variables and len(proof.gradients) == 6
    return proof


def verdict(proof, target, **mapping):
    return proofs.replay(proof, proofs.find(target, mapping), cause=False).verdict.name


def test_the_same_class_is_equal(tmp_path):
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    proof = trained(keras.optimizers.SGD(rate, momentum=0.5, nesterov=True), tmp_path)
    assert verdict(proof, "keras:keras.optimizers:SGD") == "EQUAL"
    assert verdict(proof, "keras:keras.optimizers:SGD", momentum="0.25") == "DIFFERS"
    proof = trained(keras.optimizers.RMSprop(0.05, clipnorm=0.1), tmp_path)
    assert verdict(proof, "keras:keras.optimizers:RMSprop") == "EQUAL"


def test_a_recorded_rule(tmp_path):
    optimizer = RecordedOptimizer(recorded.load("AdamOptimizer"), hyperparameters={"beta1": 0.5})
    proof = trained(optimizer, tmp_path)
    assert proof.hyperparameters[0]["beta1"] == 0.5
    assert verdict(proof, "legacy-opt:numpy") == "EQUAL"
    refused("make the recorder before the first", trained, optimizer, tmp_path)


def test_compiled_trainings_are_refused():
    optimizer = keras.optimizers.SGD(0.1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    recorder = proofs.Recorder(optimizer)

    def train():
        model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)

    if keras.backend.backend() == "jax":
        refused("pass run_eagerly=True", train)
    else:  # PyTorch compiles nothing
        train()
        assert recorder.run().proofs
