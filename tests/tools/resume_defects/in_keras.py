"""Sound resumes in Keras 3."""

import os

import keras
import numpy as np

from legacy_opt.compat.state.checkpoints import training_state

NAMES = (
    "SGD",
    "Adam",
    "AdamW",
    "Adagrad",
    "Adadelta",
    "Adamax",
    "Nadam",
    "RMSprop",
    "Ftrl",
    "Lion",
)


def defects(folder, seed):
    del folder, seed
    return []


def built(name):
    keras.utils.clear_session()
    parts = [keras.layers.Dense(4, activation="tanh"), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((3,)), *parts, keras.layers.Dense(2)])
    arguments = {"momentum": 0.9} if name == "SGD" else {}
    model.compile(getattr(keras.optimizers, name)(0.01, **arguments), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def sound(folder, random, i):
    """Returns a sound resume, by files."""
    keras.utils.set_random_seed(random.randrange(2**31))
    name = NAMES[i % len(NAMES)]
    model = built(name)
    x = np.random.randn(8, 3)
    for _ in range(random.randrange(4)):
        model.train_on_batch(x, np.ones((8, 2)))
    ending = random.choice([".keras", ".weights.h5"])
    before, after = (os.path.join(folder, f"{i}{end}{ending}") for end in "ab")
    save = keras.Model.save if ending == ".keras" else keras.Model.save_weights
    save(model, before)
    other = built(name)
    if ending == ".keras" and random.random() < 0.5:
        other = keras.models.load_model(before)
    else:
        other.load_weights(before)
    save(other, after)
    return (name, *(training_state.read(path, False) for path in (before, after)))
