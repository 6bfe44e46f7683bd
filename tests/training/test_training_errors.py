"""Tests the errors of `optimize_loss`, `create_train_op` and functions that change gradients."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import (
    AdagradDecayOptimizer,
    AdamGSOptimizer,
    AdamWOptimizer,
    adaptive_clipping_fn,
    create_train_op,
    optimize_loss,
)
from tests.support.stepping import Stepping, dot, sgd, variable

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def made():
    return Stepping()


@pytest.fixture
def stepping(made):
    with made.graph.as_default():
        yield made


@pytest.mark.parametrize("function", [optimize_loss, create_train_op, adaptive_clipping_fn])
def test_the_helpers_refuse_eager_execution(function):
    w = tf.Variable([1.0], name="w")

    def call():
        if function is optimize_loss:
            return optimize_loss(tf.reduce_sum(w), None, 0.1, "SGD")
        if function is create_train_op:
            return create_train_op(tf.reduce_sum(w), sgd())
        return adaptive_clipping_fn()([(tf.ones([1]), w)])

    for run in call, tf.function(call, autograph=False):
        with pytest.raises(RuntimeError, match=f"{function.__name__} builds.*wrap_function"):
            run()


WRONG = {
    "loss function": ({"loss": lambda: 1.0}, TypeError, "loss must be a tensor.*call it"),
    "no loss": ({"loss": None}, TypeError, "loss must be a tensor, got None"),
    "integer loss": ({"loss": 3}, TypeError, "loss must have a floating point dtype, got int32"),
    "loss of several": ({"loss": [1.0, 2.0]}, ValueError, "loss must be a scalar, got shape"),
    "constant loss": ({"loss": 1.0}, ValueError, "no variable has a gradient.*'w:0'"),
    "step number": ({"global_step": 3}, TypeError, "global_step must be an int32 or int64"),
    "negative rate": ({"learning_rate": -0.1}, ValueError, "learning_rate must not be negative"),
    "rate": ({"learning_rate": "1"}, TypeError, "learning_rate must be a number, got '1'"),
    "no number": ({"learning_rate": np.nan}, ValueError, "learning_rate must be finite"),
    "rate function": ({"learning_rate": lambda: 1.0}, TypeError, "call it, or pass it as learn"),
    "rates": ({"learning_rate": np.ones(2)}, TypeError, "learning_rate must be a number, got"),
    "no rate": ({"learning_rate": None}, ValueError, "learning_rate is None, but optimizer='SGD'"),
    "no rate for a class": (
        {"learning_rate": None, "optimizer": AdamGSOptimizer},
        ValueError,
        "learning_rate is None, but optimizer=<class",
    ),
    "unknown": ({"optimizer": "Adma"}, ValueError, "not one of the names .*mean 'Adam'"),
    "long name": ({"optimizer": "AdamOptimizer"}, ValueError, "Did you mean 'Adam'"),
    "AdamW": ({"optimizer": "AdamW"}, ValueError, "lambda learning_rate: legacy_opt.AdamW"),
    "class": ({"optimizer": AdamWOptimizer}, TypeError, "AdamWOptimizer requires other arg"),
    "other class": ({"optimizer": dict}, TypeError, "optimizer must be a name, or a class"),
    "number": ({"optimizer": 3}, TypeError, "optimizer must be a name.*got 3 of type int"),
    "Keras": ({"optimizer": tf.keras.optimizers.SGD}, TypeError, "legacy_opt.compat.to_v1"),
    "makes none": (
        {"optimizer": lambda rate: rate},
        TypeError,
        "the result of the function.*, got <tf",
    ),
    "noise": ({"gradient_noise_scale": -1.0}, ValueError, "gradient_noise_scale must not be neg"),
    "noises": ({"gradient_noise_scale": len}, TypeError, "gradient_noise_scale must be a number"),
    "multipliers": ({"gradient_multipliers": 3}, TypeError, "must be a dict from variables"),
    "multiplier": ({"gradient_multipliers": {"w:0": "2"}}, TypeError, "must be a number, got '2'"),
    "unknown name": (
        {"gradient_multipliers": {"w": 2}},
        ValueError,
        "has 'w', but there is no such variable.* 'w:0'",
    ),
    "unknown key": ({"gradient_multipliers": {3: 2}}, TypeError, "names as keys, got 3"),
    "clip": ({"clip_gradients": -1.0}, ValueError, "clip_gradients must be positive, got -1.0"),
    "clip all": ({"clip_gradients": 0}, ValueError, "clip_gradients must be positive, got 0"),
    "clip flag": ({"clip_gradients": True}, TypeError, "clip_gradients must be a number, got True"),
    "clip none": ({"clip_gradients": lambda pairs: None}, TypeError, "list of .gradient, variab"),
    "decay": ({"learning_rate_decay_fn": 0.9}, TypeError, "must be a function or None, got 0.9"),
    "update op": ({"update_ops": "op"}, TypeError, "update_ops must be a list of operations"),
    "nothing": ({"variables": []}, ValueError, "variables: there is no variable to train"),
    "a number": ({"variables": 3}, TypeError, "variables must be a list of variables or None"),
    "name": ({"name": 3}, TypeError, "name must be a string, got 3"),
    "summary": ({"summaries": "loss"}, TypeError, "summaries must be a list of names"),
    "number of": ({"summaries": 3}, TypeError, "summaries must be a list of names"),
    "summaries": ({"summaries": ["losses"]}, ValueError, r"got \['losses'\]"),
    "flag": ({"colocate_gradients_with_ops": 1}, TypeError, "must be True or False, got 1"),
    "other flag": ({"increment_global_step": None}, TypeError, "must be True or False, got None"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_errors_of_optimize_loss(stepping, name):
    wrong, error, words = WRONG[name]
    arguments = {"loss": stepping.loss, "global_step": None, "learning_rate": 0.1}
    arguments = dict(arguments, **dict({"optimizer": "SGD"}, **wrong))
    with pytest.raises(error, match=words):
        optimize_loss(**arguments)


def test_errors_of_optimize_loss_about_tensors(stepping):
    with pytest.raises(ValueError, match=r"loss must be a scalar.*tf.reshape\(loss, \[\]\)"):
        optimize_loss(v1.placeholder(tf.float32), None, 0.1, "SGD")
    with pytest.raises(ValueError, match="learning_rate must be a scalar"):
        optimize_loss(stepping.loss, None, tf.constant([0.1]), "SGD")
    with pytest.raises(TypeError, match="a variable to be incremented.*increment_global_step"):
        optimize_loss(stepping.loss, tf.constant(3), 0.1, "SGD")
    with pytest.raises(TypeError, match="global_step must be int32 or int64, got float32"):
        optimize_loss(stepping.loss, variable("s", 0.0, trainable=False), 0.1, "SGD")
    with pytest.raises(TypeError, match="variables must be a list of variables or None, got <tf"):
        optimize_loss(stepping.loss, None, 0.1, "SGD", variables=stepping.w)
    with pytest.raises(ValueError, match="no variable has a gradient"):
        optimize_loss(stepping.loss, None, 0.1, "SGD", clip_gradients=lambda pairs: [])


def test_errors_without_a_global_step():
    with tf.Graph().as_default():
        loss = dot(variable("w", [0.0]), 1.0)
        with pytest.raises(ValueError, match="learning_rate_decay_fn needs a global_step"):
            optimize_loss(loss, None, 1.0, "SGD", learning_rate_decay_fn=lambda rate, step: rate)
        with pytest.raises(ValueError, match="'AdagradDecay' requires a global step, and this"):
            optimize_loss(loss, None, 1.0, "AdagradDecay")
        with pytest.raises(ValueError, match="AdagradDecayOptimizer requires a global step"):
            optimize_loss(loss, None, 1.0, AdagradDecayOptimizer)


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        ({"std_factor": "2"}, TypeError, "std_factor must be a number"),
        ({"decay": 1.0}, ValueError, "decay must be at least 0 and less than 1"),
        ({"decay": lambda: 0.5}, TypeError, "decay must be a number or a scalar tensor"),
        ({"static_max_norm": 0.0}, ValueError, "static_max_norm must be positive"),
        ({"global_step": 3}, TypeError, "global_step must be an int32 or int64 variable"),
        ({"report_summary": "yes"}, TypeError, "report_summary must be True or False"),
        ({"epsilon": 0.0}, ValueError, "epsilon must be positive"),
        ({"name": 3}, TypeError, "name must be a string"),
    ],
)
def test_errors_of_adaptive_clipping(wrong, error, words):
    with pytest.raises(error, match=words):
        adaptive_clipping_fn(**wrong)


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        ({"optimizer": "SGD"}, TypeError, "optimizer of create_train_op must be a .*got 'SGD'"),
        ({"optimizer": AdamGSOptimizer}, TypeError, "optimizer of create_train_op must be a"),
        ({"global_step": 1}, TypeError, "global_step must be an int32 or int64 variable"),
        ({"global_step": False}, TypeError, "global_step must be an int32 or int64 variable"),
        ({"update_ops": 3}, TypeError, "update_ops must be a list of operations or None"),
        ({"variables_to_train": []}, ValueError, "there is no variable to train"),
        ({"variables_to_train": ["w"]}, TypeError, "variables_to_train: 'w' is not a variable"),
        ({"transform_grads_fn": 3}, TypeError, "transform_grads_fn must be a function or None"),
        (
            {"transform_grads_fn": len},
            TypeError,
            "after transform_grads_fn, takes a list of .gradient, variable. pairs",
        ),
        ({"summarize_gradients": 1}, TypeError, "summarize_gradients must be True or False"),
        ({"check_numerics": 1}, TypeError, "check_numerics must be True, False or 'loss', got 1"),
        ({"check_numerics": "all"}, TypeError, "check_numerics must be True, False or 'loss'"),
    ],
)
def test_errors_of_create_train_op(stepping, wrong, error, words):
    with pytest.raises(error, match=words):
        create_train_op(stepping.loss, **dict({"optimizer": sgd()}, **wrong))


def test_errors_of_create_train_op_about_variables(stepping):
    with pytest.raises(ValueError, match="'global_step:0', which is not trainable. Create it with"):
        create_train_op(stepping.loss, sgd(), variables_to_train=[stepping.step])
    with pytest.raises(ValueError, match="no variable has a gradient"):
        create_train_op(tf.constant(1.0), sgd())
    with tf.Graph().as_default(), pytest.raises(ValueError, match="there is no variable to train"):
        create_train_op(tf.constant(1.0), sgd())


def test_errors_of_functions_of_gradients(stepping):
    pairs = [(tf.ones([2]), stepping.w)]
    for call in legacy_opt.clip_gradient_norms_fn, lambda n: legacy_opt.clip_gradient_norms([], n):
        with pytest.raises(ValueError, match="max_norm must be positive, got 0"):
            call(0)
    with pytest.raises(TypeError, match="multiply_gradients takes a list of .gradient, variable"):
        legacy_opt.multiply_gradients([stepping.w], {"w": 2})
    with pytest.raises(ValueError, match="no such variable. Trained variables: none."):
        legacy_opt.multiply_gradients([], {"nothing": 2})
    with pytest.raises(ValueError, match="has 'w:0', but there is no such variable.*: 'w'"):
        legacy_opt.multiply_gradients(pairs, {"w:0": 2})
    with pytest.raises(ValueError, match="has 'w', which has no gradient"):
        legacy_opt.multiply_gradients([(None, stepping.w)], {"w": 2})
    for function in legacy_opt.add_gradients_summaries, adaptive_clipping_fn():
        with pytest.raises(TypeError, match="takes a list of .gradient, variable. pairs"):
            function(3)
