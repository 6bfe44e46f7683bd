"""Runs tests with `legacy_opt.compat.contrib` and, on TensorFlow 1.15, with `tf.contrib`, too."""

import functools

import pytest
import tensorflow as tf

from legacy_opt.compat import contrib
from legacy_opt.compat.old_programs import old_names
from legacy_opt.compat.old_programs.old_names import patching

v1 = tf.compat.v1
OURS, ORIGINAL = "legacy_opt", pytest.param("tf", marks=pytest.mark.contrib)
ORIGINS = [OURS, ORIGINAL]


def piece(origin, name):
    """Returns an attribute, such as "crf.crf_decode", of our package or of `tf.contrib`.

    Instead of our package's, the object that a patch puts back if this has other arguments.
    """
    if origin == OURS and f"tf.contrib.{name}" in old_names.MOVED:
        return patching.found(*f"tf.contrib.{name}".rsplit(".", 1))
    home = contrib if origin == OURS else tf.contrib
    return functools.reduce(getattr, name.split("."), home)


def run(build, feed=None, steps=1, seed=None):
    """Returns the values of what `build()` returns, after `steps` runs, in a graph of its own."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(seed)
        fetches = build()
        initializers = (
            *(v1.global_variables_initializer(), v1.local_variables_initializer()),
            v1.tables_initializer(),
        )
        session.run(initializers)
        for _ in range(steps):
            values = session.run(fetches, feed)
        return values
