"""Compares attributes and errors of our classes with those of `tf.contrib`, on TensorFlow 1.15.

On every TensorFlow version, tests/optimizers/test_originals.py tests our attributes and errors
without `tf.contrib`.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.contrib import layers, opt
from tensorflow.contrib import training as contrib_training
from tensorflow.contrib.opt.python.training import sign_decay

import legacy_opt
from tests.support import running

v1 = tf.compat.v1
pytestmark = [
    pytest.mark.contrib,
    pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning"),
]
ADAM = ("_lr", "_beta1", "_beta2", "_epsilon")
TENSORS = ("_lr_t", "_beta1_t", "_beta2_t", "_epsilon_t")
READ = {
    "AdaMaxOptimizer": ADAM + TENSORS,
    "AdamGSOptimizer": ADAM + TENSORS,
    "AddSignOptimizer": ("_lr", "_alpha", "_beta", "_lr_t", "_alpha_t", "_beta_t", "_sign_decay_t"),
    "LARSOptimizer": (
        "_learning_rate",
        "_momentum",
        "_weight_decay",
        "_eeta",
        "_epsilon",
        "_skip_list",
        "_use_nesterov",
        "_learning_rate_tensor",
        "_momentum_tensor",
    ),
    "LazyAdamGSOptimizer": ADAM + TENSORS,
    "LazyAdamOptimizer": ADAM + TENSORS,
    "NadamOptimizer": ADAM + TENSORS,
    "PowerSignOptimizer": ("_lr", "_beta", "_logbase", "_lr_t", "_beta_t", "_logbase_t"),
    "RegAdagradOptimizer": (
        "_learning_rate",
        "_initial_accumulator_value",
        "_should_update_slots",
        "_learning_rate_tensor",
    ),
    "ShampooOptimizer": (
        "_max_matrix_size",
        "_gbar_decay",
        "_mat_gbar_weight",
        "_learning_rate",
        "_svd_interval",
        "_alpha",
    ),
}
NEEDED = {"LARSOptimizer": (0.1,), "RegAdagradOptimizer": (0.1,)}


def loss():
    return tf.reduce_sum(tf.square(v1.get_variable("w", initializer=[1.0, 2.0])))


@pytest.mark.parametrize("name", READ)
def test_attributes_that_subclasses_read(name):
    """Compares our attributes with the original's attributes, before and after a training step."""
    found = []
    for module in (opt, legacy_opt):
        with tf.Graph().as_default(), v1.Session() as session:
            # The "GS" classes require a global step. It may be a constant.
            given = (1.0,) if "GS" in name else NEEDED.get(name, ())
            optimizer = getattr(module, name)(*given)
            train_op = optimizer.minimize(loss())
            session.run(v1.global_variables_initializer())
            read = [getattr(optimizer, each) for each in READ[name]]
            if hasattr(opt.__dict__[name], "_get_beta_accumulators"):
                powers = optimizer._get_beta_accumulators()
                read += powers if isinstance(powers, tuple) else [powers]
            tensors = [each for each in read if tf.is_tensor(each) or isinstance(each, tf.Variable)]
            before = session.run(tensors)
            session.run(train_op)
            plain = [each for each in read if each is None or isinstance(each, (int, float, list))]
            found.append((plain, before, session.run(tensors), optimizer.get_slot_names()))
            assert len(plain) + len(tensors) == len(read)
    assert found[0] == found[1]


def applied(optimizer, gradient=(1.0, 1.0), dtype=tf.float32):
    variable = v1.get_variable("v", initializer=tf.constant([1.0, 2.0], dtype))
    return optimizer.apply_gradients([(tf.constant(gradient), variable)])


def optimizing(**arguments):
    given = dict({"loss": loss, "learning_rate": 0.1, "optimizer": "SGD"}, **arguments)

    def call(module):
        optimize_loss = (module if module is legacy_opt else layers).optimize_loss
        return optimize_loss(
            global_step=None,
            **{key: value() if value is loss else value for key, value in given.items()},
        )

    return call


# Calls that must raise an error. `module` is tf.contrib.opt or legacy_opt.
CALLS = {
    "no name": lambda module: module.NadamOptimizer(name=""),
    "a name that is none": lambda module: module.NadamOptimizer(name=None),
    "no rate": lambda module: applied(module.LazyAdamOptimizer(None)),
    "rates": lambda module: applied(module.AdaMaxOptimizer([0.1])),
    "steps": lambda module: applied(module.AdamGSOptimizer([1])),
    "nothing to apply": lambda module: module.AdaMaxOptimizer().apply_gradients([]),
    "no gradient": lambda module: module.AdaMaxOptimizer().apply_gradients(
        [(None, v1.get_variable("v", [2]))]
    ),
    "a gradient that is a word": lambda module: module.AdaMaxOptimizer().apply_gradients(
        [("x", v1.get_variable("v", [2]))]
    ),
    "a gradient of another shape": lambda module: applied(module.AdaMaxOptimizer(), [1.0] * 3),
    "a gradient of another dtype": lambda module: applied(
        module.AdaMaxOptimizer(), dtype=tf.float64
    ),
    "no variables": lambda module: module.NadamOptimizer().minimize(tf.constant(1.0)),
    "unknown gate_gradients": lambda module: module.NadamOptimizer().minimize(
        loss(), gate_gradients=7
    ),
    "an integer loss": lambda module: module.NadamOptimizer().minimize(tf.cast(loss(), tf.int32)),
    "momentum": lambda module: module.LARSOptimizer(0.1, momentum=-1.0),
    "weight decay": lambda module: module.LARSOptimizer(0.1, weight_decay=-1.0),
    "accumulator": lambda module: module.RegAdagradOptimizer(0.1, 0.0),
    "base": lambda module: module.PowerSignOptimizer(base=-1.0),
    "base is a string": lambda module: module.PowerSignOptimizer(base="e"),
    "a decay without a step": lambda module: applied(
        module.AddSignOptimizer(sign_decay_fn=lambda step: decays(module)(10)(None))
    ),
    "decay steps": lambda module: decays(module)(None)(3),
    "the saver comes too early": lambda module: module.MovingAverageOptimizer(
        v1.train.GradientDescentOptimizer(0.1)
    ).swapping_saver(),
    "no optimizer inside": lambda module: module.MultitaskOptimizerWrapper("Adam"),
    "loss": optimizing(loss=None),
    "optimizer": optimizing(optimizer=5),
    "optimizer is none": optimizing(optimizer=None),
    "unknown optimizer name": optimizing(optimizer="Nope"),
    "optimizer function returns no optimizer": optimizing(optimizer=lambda rate: rate),
    "learning rate": optimizing(learning_rate="0.1"),
    "learning rate below 0": optimizing(learning_rate=-0.1),
    "no learning rate": optimizing(learning_rate=None),
    "clipping": optimizing(clip_gradients="1"),
    "summaries": optimizing(summaries=["nope"]),
    "one summary": optimizing(summaries="loss"),
    "multipliers": lambda module: multiplying(module)([(tf.ones([1]), loss())], [2.0]),
    "no multipliers": lambda module: multiplying(module)([(tf.ones([1]), loss())], {}),
    "multiplied": lambda module: multiplying(module)(5, {"w": 2.0}),
}


def decays(module):
    return (module if module is legacy_opt else sign_decay).get_linear_decay_fn


def multiplying(module):
    return (module if module is legacy_opt else contrib_training).multiply_gradients


@pytest.mark.parametrize("what", CALLS)
def test_an_error_is_one_of_the_originals_class(what):
    with tf.Graph().as_default(), pytest.raises(Exception) as original:
        CALLS[what](opt)
    with tf.Graph().as_default(), pytest.raises(type(original.value)):
        CALLS[what](legacy_opt)


@pytest.mark.parametrize(
    "name, step",
    [
        ("AdamGSOptimizer", 1.0),
        ("AdamGSOptimizer", np.array(4)),
        ("LazyAdamGSOptimizer", 2.5),
        ("ShampooOptimizer", np.float32(3)),
    ],
)
def test_constant_steps(name, step):
    values = []
    for module in (opt, legacy_opt):
        with tf.Graph().as_default():
            train_op = getattr(module, name)(step).minimize(loss())
            values.append(running.after(train_op, v1.global_variables(), 3))
    for one, other in zip(*values):
        assert np.array_equal(one, other)
