"""Tests that no bridge drops the state of a v1 optimizer that has already trained.

`to_keras` refuses such an optimizer where its variables are: in eager code, and in the graph in
which it has trained. The documented way with a checkpoint continues the training bit for bit.
"""

import copy

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat

v1 = tf.compat.v1
MOMENTUM = lambda: v1.train.MomentumOptimizer(1.0, 0.9)  # noqa: E731
ADAM = lambda: v1.train.AdamOptimizer(0.1)  # noqa: E731
# The makers of optimizers, and the state that an error must name.
STATES = {
    "Momentum": (MOMENTUM, "momentum"),
    "Adam": (ADAM, "m, v, beta1_power, beta2_power"),
    "AdagradDecay": (
        lambda: legacy_opt.AdagradDecayOptimizer(0.1, v1.train.get_or_create_global_step()),
        "accumulator, accumulator_decay_power",
    ),
    "AdamW": (
        lambda: legacy_opt.AdamWOptimizer(0.1),
        "m, v, beta1_power, beta2_power",
    ),
    "accelerated": (lambda: legacy_opt.native.accelerate(MOMENTUM()), "momentum"),
    "accumulation": (
        lambda: legacy_opt.GradientAccumulationOptimizer(MOMENTUM(), 2),
        "gradient_sum, GradientAccumulation/count",
    ),
    "wrapper without state": (
        lambda: legacy_opt.ClipByValueOptimizer(MOMENTUM(), -9.0, 9.0),
        "momentum",
    ),
    "one of several": (
        lambda: legacy_opt.MultiOptimizer([(ADAM(), "other")], default=MOMENTUM()),
        "momentum",
    ),
}


def apply(optimizer, variable, gradient=1.0):
    step = v1.train.get_or_create_global_step()
    return optimizer.apply_gradients([(tf.constant(gradient), variable)], step)


@pytest.mark.parametrize("name", STATES)
@pytest.mark.filterwarnings("ignore::legacy_opt.core.user_warnings.NativeKernelWarning")
def test_state_of_eager_code_is_refused(name, api):
    make, state = STATES[name]
    optimizer = make()
    api.bridged(optimizer)  # it has not trained yet
    variable = tf.Variable(5.0)
    apply(optimizer, variable)
    before = variable.numpy()
    for trained in optimizer, copy.deepcopy(optimizer), copy.copy(optimizer):
        with pytest.raises(ValueError, match="has trained already.* new state, without " + state):
            api.bridged(trained)
    assert variable.numpy() == before
    with tf.Graph().as_default(), pytest.raises(ValueError, match="has trained already"):
        api.bridged(optimizer)
    api.bridged(make())


def test_state_of_a_function_is_refused(api):
    optimizer, variable = MOMENTUM(), tf.Variable(5.0)

    @tf.function
    def step():
        optimizer.apply_gradients([(tf.constant(1.0), variable)])

    step()
    with pytest.raises(ValueError, match="without momentum"):
        api.bridged(optimizer)


def test_an_optimizer_without_state_may_have_trained(api):
    optimizer, variable = v1.train.GradientDescentOptimizer(1.0), tf.Variable(5.0)
    apply(optimizer, variable)
    api.bridged(optimizer).apply_gradients([(tf.constant(1.0), variable)])
    assert variable.numpy() == 3.0


def test_state_in_a_graph_is_refused_in_this_graph_only(api):
    optimizer = ADAM()
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("w", initializer=5.0, use_resource=True)
        apply(optimizer, variable)
        with pytest.raises(ValueError, match="without m, v, beta1_power, beta2_power"):
            api.bridged(optimizer)
    with tf.Graph().as_default():
        api.bridged(optimizer)
    api.bridged(optimizer)
    with graph.as_default(), pytest.raises(ValueError, match="has trained already"):
        api.bridged(optimizer)


def decay():
    step = v1.train.get_or_create_global_step()
    return legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2)


# The makers of optimizers, the names of their slots in checkpoints, and their shared variables.
SETTINGS = {
    "Momentum": (MOMENTUM, {"w/Momentum": "momentum"}, lambda _: {}),
    "Adam": (
        ADAM,
        {"w/Adam": "m", "w/Adam_1": "v"},
        lambda adam: dict(zip(["beta1_power", "beta2_power"], adam._get_beta_accumulators())),
    ),
    "AdagradDecay": (
        decay,
        {"w/AdagradDecay": "accumulator", "w/AdagradDecay_1": "accumulator_decay_power"},
        lambda _: {},
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_documented_way_continues_the_training(name, api, tmp_path):
    make, slots, shared = SETTINGS[name]
    gradients, expected = [1.0, 0.5, 2.0, 0.25, 1.0], []
    step = v1.train.get_or_create_global_step()
    step.assign(0)
    optimizer, w = make(), tf.Variable([5.0])
    for gradient in gradients:
        apply(optimizer, w, [gradient])
        expected.append(w.numpy())
    step.assign(0)
    trained, w = make(), tf.Variable([5.0])
    for gradient in gradients[:2]:
        apply(trained, w, [gradient])

    # As in docs/keras.md.
    state = {key: trained.get_slot(w, slot) for key, slot in slots.items()}
    state.update(shared(trained), w=w, global_step=step)
    path = v1.train.Saver(state).save(None, str(tmp_path / "trained"))
    optimizer = api.bridged(make())
    compat.load_v1_checkpoint(path, {"w": w}, optimizer)
    for gradient, value in zip(gradients[2:], expected[2:]):
        optimizer.apply_gradients([(tf.constant([gradient]), w)])
        np.testing.assert_array_equal(w.numpy(), value)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_to_v1_has_made_is_refused_too(momentum, api):
    optimizer = compat.to_v1(lambda: api.optimizers.SGD(1.0, momentum))
    compat.to_keras(optimizer)
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=5.0, use_resource=True)
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        with pytest.raises(ValueError, match="has trained already.*optimizer.keras_optimizer"):
            compat.to_keras(optimizer)
    compat.to_keras(optimizer)
    variable = tf.Variable(5.0)
    optimizer.apply_gradients([(tf.constant(1.0), variable)])
    with pytest.raises(ValueError, match="has trained already.*optimizer.keras_optimizer"):
        compat.to_keras(optimizer)
    optimizer.keras_optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert variable.numpy() == np.float32(5.0 - 1.0 - (1.0 + momentum))


# Other ways from one optimizer to another.


def test_to_plain_keras_refuses_it_too(api):
    optimizer = MOMENTUM()
    apply(optimizer, tf.Variable(5.0))
    with pytest.raises(ValueError, match="has trained already"):
        compat.to_plain_keras(optimizer, api=api.name)


def test_comparisons_train_copies_without_state(api):
    optimizer = MOMENTUM()
    apply(optimizer, tf.Variable(5.0))
    assert compat.compare_with_session(optimizer, steps=2, api=api.name).equal


def test_accelerate_and_copies_keep_the_state():
    variable = tf.Variable(5.0)
    optimizer = MOMENTUM()
    apply(optimizer, variable)
    optimizer = copy.deepcopy(legacy_opt.native.accelerate(optimizer))
    optimizer.native = "off"
    apply(optimizer, variable)
    assert variable.numpy() == np.float32(5.0 - 1.0 - 1.9)
