"""Updates variables with an operations library. `probe` runs this module in a child process."""

from __future__ import annotations

import functools
from pathlib import Path

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.native.runtime import compiled_kernels, tensorflow_operations
from legacy_opt.programs.program import ELEMENT, GRADIENT, VALUE, Input, Program
from legacy_opt.programs.trace import Results, trace

v1 = tf.compat.v1


def program() -> Program:
    """Returns the program of the test: gradient descent with the rate 1."""
    inputs = [Input(name, ELEMENT, "float32") for name in (GRADIENT, VALUE)]
    return trace(inputs, [None, None], lambda tensors: Results(tensors[inputs[0]], {}))


def main(path: str) -> None:
    """Updates variables with a library; raises a RuntimeError if it computes wrong values."""
    library = tensorflow_operations.load_file(Path(path))
    kernel = compiled_kernels.compiled(program())
    tensorflow_operations.register(library, kernel)
    for use_resource in False, True:
        with tf.Graph().as_default(), v1.Session() as session:
            start = tf.constant([[1.0, 2.0], [3.0, 4.0]])
            variable = v1.get_variable("w", initializer=start, use_resource=use_resource)
            target = [variable.handle if use_resource else versions.ref_of(variable)]
            update = functools.partial(tensorflow_operations.update, library, kernel, target)
            dense = update(scalars=[], gradients=[start / 4], use_locking=True)
            ids = tf.constant([1])
            rows = update(scalars=[], gradients=[start[:1]], use_locking=True, ids=ids)
            session.run(v1.global_variables_initializer())
            session.run(dense)
            session.run(rows)
            value = session.run(variable).tolist()
        if value != [[0.75, 1.5], [1.25, 1.0]]:
            raise RuntimeError(f"it computes wrong values: {value}")
