"""Tests apply_gradients' argument `decay_var_list` with bridged optimizers (made by `to_keras`)."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdamWOptimizer, MomentumWOptimizer, extend_with_decoupled_weight_decay
from tests.support.keras.keras_apis import KERAS_3
from tests.support.shared_by_threads import THREADS, each_number

v1 = tf.compat.v1
AdagradW = extend_with_decoupled_weight_decay(v1.train.AdagradOptimizer)
MAKERS = {
    "AdamW": lambda: AdamWOptimizer(0.1, learning_rate=0.01),
    "MomentumW": lambda: MomentumWOptimizer(0.1, 0.01, 0.9),
    "extended Adagrad": lambda: AdagradW(0.1, learning_rate=0.01),
}
STARTS = {
    name: np.linspace(size, 2 * size, 12, dtype="f").reshape(4, 3)
    for name, size in (("a", 1), ("b", 2))
}
ROWS = np.array([2, 0, 2])


def gradients(number):
    dense = np.full([4, 3], 0.5 + number, "f")
    return {"a": dense, "b": dense[:3] * np.arange(1, 4, dtype="f")[:, np.newaxis]}


def pairs(values, variables):
    """Returns pairs for apply_gradients. The second gradient is sparse and repeats an id."""
    shape = tf.constant([4, 3], tf.int64)
    sparse = tf.IndexedSlices(tf.convert_to_tensor(values["b"]), tf.constant(ROWS), shape)
    return [(tf.convert_to_tensor(values["a"]), variables["a"]), (sparse, variables["b"])]


def session(make, decayed):
    with tf.Graph().as_default(), v1.Session() as sess:
        variables = {
            name: v1.get_variable(name, initializer=value, use_resource=True)
            for name, value in STARTS.items()
        }
        optimizer = make()
        chosen = [variables[name] for name in decayed]
        steps = [
            optimizer.apply_gradients(pairs(gradients(number), variables), decay_var_list=chosen)
            for number in range(2)
        ]
        sess.run(v1.global_variables_initializer())
        for step in steps:
            sess.run(step)
        return sess.run(variables)


@pytest.mark.in_turn(name=MAKERS, way=["function", "eager"], decayed=["a", "b"])
def test_only_these_variables_decay(api, decayed, name, way):
    optimizer = api.bridged(MAKERS[name]())
    variables = {each: api.variable(value) for each, value in STARTS.items()}

    def step(number):
        optimizer.apply_gradients(
            pairs(gradients(number), variables), decay_var_list=[variables[decayed]]
        )

    for number in range(2):
        (tf.function(step) if way == "function" else step)(number)
    expected = session(MAKERS[name], decayed)
    for each, variable in variables.items():
        actual = variable.numpy()
        if way == "function":
            np.testing.assert_array_equal(actual, expected[each])
        else:  # TensorFlow rewrites the Session's graph, so the last bits may differ
            np.testing.assert_allclose(actual, expected[each], rtol=1e-6)
    both = session(MAKERS[name], "ab")
    other = "b" if decayed == "a" else "a"
    assert not np.allclose(variables[other].numpy(), both[other], rtol=1e-3)


def test_the_list_is_for_one_call(api):
    optimizer = api.bridged(AdagradW(0.5, learning_rate=1e-6))
    variable, other = api.variable(np.ones([2], "f")), api.variable(np.ones([2], "f"))
    zero = tf.zeros([2])
    optimizer.apply_gradients([(zero, variable), (zero, other)], decay_var_list=[other])
    optimizer.apply_gradients([(zero, variable), (zero, other)])
    np.testing.assert_allclose(variable.numpy(), [0.5, 0.5])
    np.testing.assert_allclose(other.numpy(), [0.25, 0.25])


def test_each_thread_has_a_list_of_its_own(api):
    optimizer = api.bridged(AdagradW(0.5, learning_rate=1e-6))
    variables = [api.variable(np.ones([1], "f")) for _ in range(2 * THREADS)]
    pairs_of_all = [(tf.zeros([1]), variable) for variable in variables]
    optimizer.apply_gradients(pairs_of_all)  # Keras 3 needs all variables in the first step

    def train(number):
        own = pairs_of_all[2 * number :][:2]
        for _ in range(3):
            optimizer.apply_gradients(own, decay_var_list=[own[0][1]])

    each_number(train, at_once=True)
    assert [variable.numpy()[0] for variable in variables] == THREADS * [0.0625, 0.5]


@pytest.mark.keras3
def test_what_keras_excludes_does_not_decay_either():
    optimizer = KERAS_3.bridged(AdagradW(0.5, learning_rate=1e-6))
    variables = {name: KERAS_3.variable(np.ones([2], "f"), name=name) for name in "abc"}
    optimizer.exclude_from_weight_decay(var_names=["b"])
    given = [(tf.zeros([2]), variable) for variable in variables.values()]
    optimizer.apply_gradients(given, decay_var_list=[variables["a"], variables["b"]])
    after = {name: variable.numpy()[0] for name, variable in variables.items()}
    assert after == {"a": 0.5, "b": 1.0, "c": 1.0}


def test_errors(api):
    variable = api.variable(np.ones([2], "f"))
    given = [(tf.zeros([2]), variable)]
    with pytest.raises(TypeError, match="decay_var_list: AdamOptimizer has no decoupled weight"):
        api.bridged(v1.train.AdamOptimizer()).apply_gradients(given, decay_var_list=[variable])
    optimizer = api.bridged(MAKERS["AdamW"]())
    with pytest.raises(ValueError, match="decay_var_list is empty"):
        optimizer.apply_gradients(given, decay_var_list=[])
    with pytest.raises(TypeError, match="decay_var_list must contain only variables, got 'kernel'"):
        optimizer.apply_gradients(given, decay_var_list=["kernel"])
    np.testing.assert_array_equal(variable.numpy(), [1.0, 1.0])
