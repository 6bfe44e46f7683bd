"""Trains with optimizers of Addons and of this package on the same gradients, step by step."""

import itertools

import numpy as np
import tensorflow as tf

SHAPES = {"kernel": (3, 4), "bias": (), "table": (6, 3), "rows": (7, 2)}
IDS = {"table": [3, 1, 3], "rows": [0, 5]}  # the rows with a gradient; equal ids are summed


def gradient(random, name, dtype):
    shape = (len(IDS[name]), *SHAPES[name][1:]) if name in IDS else SHAPES[name]
    # Gradients of many sizes; some are zero.
    values = random.normal(size=shape) * 10 ** random.uniform(-3, 1, size=shape)
    values = np.where(random.uniform(size=shape) < 0.1, 0, values).astype(dtype)
    if name not in IDS:
        return tf.constant(values)
    return tf.IndexedSlices(tf.constant(values), tf.constant(IDS[name]), tf.constant(SHAPES[name]))


def train(optimizer, way, dtype, dense_only, steps=25):
    """Returns the values of all variables after each step, and the slots after the last one."""
    random = np.random.RandomState(0)
    variables = {
        name: tf.Variable(random.normal(size=shape).astype(dtype), name=name)
        for name, shape in SHAPES.items()
        if not (dense_only and name in IDS)
    }
    gradients = [{name: gradient(random, name, dtype) for name in variables} for _ in range(steps)]

    def apply(grads):
        optimizer.apply_gradients([(grads[name], variables[name]) for name in variables])

    step = tf.function(apply) if way == "function" else apply
    values = []
    for grads in gradients:
        step(grads)
        values.append({name: variable.numpy() for name, variable in variables.items()})
    slots = {
        (name, slot): optimizer.get_slot(variable, slot).numpy()
        for name, variable in variables.items()
        for slot in optimizer.get_slot_names()
    }
    return values, slots


def compare(theirs, ours, arguments, regrouped=(), dense_only=False):
    """Asserts that two classes compute the same bits, eagerly and in functions.

    Args:
      theirs: the class of Addons.
      ours: the class of this package.
      arguments: a dict with the arguments of both classes.
      regrouped: the variables for which Grappler changes the last bits of Addons' updates, in
        functions only.
      dense_only: whether the class of Addons cannot apply sparse gradients.
    """
    for way, dtype in itertools.product(("eager", "function"), ("float32", "float64")):
        values, slots = train(ours(**arguments), way, dtype, dense_only)
        their_values, their_slots = train(theirs(**arguments), way, dtype, dense_only)
        assert sorted(slots) == sorted(their_slots)
        differing = regrouped if way == "function" else ()
        bounds = {name: 16 * np.finfo(dtype).eps * (name in differing) for name in values[0]}
        for step, (found, expected) in enumerate(zip(values, their_values), 1):
            for name, bound in bounds.items():
                assert_near(found[name], expected[name], bound, f"{way} {dtype} {name} {step}")
        for name in bounds:
            assert not np.array_equal(values[0][name], values[-1][name]), f"{name} is not trained"
        for key, found in slots.items():
            what = f"{way} {dtype} {key}"
            # All elements of Addons' vhat of NovoGrad are equal; here, it is a scalar.
            found = np.broadcast_to(found, their_slots[key].shape)
            assert_near(found, their_slots[key], bounds[key[0]] * 10, what)


def assert_near(found, expected, bound, what):
    if bound == 0.0:
        np.testing.assert_array_equal(found, expected, what)
    else:
        np.testing.assert_allclose(found, expected, rtol=bound, atol=bound, err_msg=what)
