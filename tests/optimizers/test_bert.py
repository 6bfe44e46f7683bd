"""Tests BERT's AdamWeightDecay and LAMB: values by hand, names, exclusions, the global step."""

import contextlib
import functools
import inspect
import warnings

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdamWeightDecayOptimizer, GlobalStepWarning, LAMBOptimizer, LARSOptimizer
from legacy_opt.compat import to_keras
from tests.optimizers.nested_layers import built_block
from tests.support import running
from tests.support.stepping import trained

v1 = tf.compat.v1
BOTH = pytest.mark.parametrize("optimizer", [AdamWeightDecayOptimizer, LAMBOptimizer])
NUMBERS = {"beta_1": 0.5, "beta_2": 0.75, "epsilon": 1.0}


def train(*arguments):
    """Returns the value of the variable after each step."""
    return trained(*arguments)[0]


def test_two_steps_of_berts_adam_by_hand():
    optimizer = AdamWeightDecayOptimizer(0.1, weight_decay_rate=0.5, **NUMBERS)
    first, second = train(optimizer, [1.0], [[2.0], [1.0]])
    # m = 0.5 * 2 = 1; v = 0.25 * 4 = 1; the update is 1 / (1 + 1) + 0.5 * 1 = 1
    np.testing.assert_allclose(first, [1 - 0.1 * 1], rtol=1e-7)
    # m = 0.5 + 0.5 * 1 = 1; v = 0.75 + 0.25 * 1 = 1; the update is 1 / (1 + 1) + 0.5 * 0.9 = 0.95
    np.testing.assert_allclose(second, [0.9 - 0.1 * 0.95], rtol=1e-7)


def test_two_steps_of_lamb_by_hand():
    optimizer = LAMBOptimizer(0.1, weight_decay_rate=0.5, **NUMBERS)
    first, second = train(optimizer, [3.0, 4.0], [[2.0, 0.0], [2.0, 0.0]])
    # m = [1, 0], divided by 1 - 0.5: [2, 0]; v = [1, 0], divided by 1 - 0.75: [4, 0]
    # u = [2 / (2 + 1) + 0.5 * 3, 0.5 * 4] = [13 / 6, 2]; |w| = 5
    u = np.array([13 / 6, 2])
    w = np.array([3, 4]) - 0.1 * 5 / np.sqrt(169 / 36 + 4) * u
    np.testing.assert_allclose(first, w, rtol=2e-7)
    # m = [1.5, 0], divided by 1 - 0.25: [2, 0]; v = [1.75, 0], divided by 1 - 0.5625: [4, 0]
    u = np.array([2 / 3, 0]) + 0.5 * w
    w = w - 0.1 * np.sqrt(w @ w) / np.sqrt(u @ u) * u
    np.testing.assert_allclose(second, w, rtol=2e-7)


def test_lamb_without_bias_correction():
    optimizer = LAMBOptimizer(0.1, bias_correction=False, **NUMBERS)
    (first,) = train(optimizer, [3.0, 4.0], [[2.0, 4.0]])
    u = np.array([1 / (1 + 1), 2 / (2 + 1)])
    np.testing.assert_allclose(first, [3, 4] - 0.1 * 5 / np.sqrt(u @ u) * u, rtol=2e-7)


def test_lamb_does_not_scale_the_update_if_a_norm_is_zero():
    def lamb():
        return LAMBOptimizer(0.1, beta_1=0.5, beta_2=0.75, epsilon=1.0)

    np.testing.assert_allclose(train(lamb(), [0.0], [[2.0]])[0], [-0.1 * 2 / 3], rtol=2e-7)
    assert train(lamb(), [5.0], [[0.0]])[0] == [5.0]


def test_the_digits_of_lambs_bias_correction():
    # v / (1 - 0.999) is g**2. If the bias correction rounded 0.999 to float32, this quotient would
    # have a relative error of 1.3e-5.
    optimizer = LAMBOptimizer(1.0, epsilon=0.0, exclude_from_layer_adaptation=["w"])
    (first,) = train(optimizer, [0.0], [[3.0]])
    np.testing.assert_allclose(first, [-1.0], rtol=5e-7)


@BOTH
def test_variables_in_the_checkpoint(optimizer):
    with tf.Graph().as_default():
        with v1.variable_scope("bert/encoder"):
            w = v1.get_variable("kernel", [2, 3])
        step = v1.train.get_or_create_global_step()
        made = optimizer(0.1)
        made.apply_gradients([(tf.ones([2, 3]), w)], global_step=step)
        found = {each.op.name: each.shape.as_list() for each in v1.global_variables()}
        assert found == {
            "bert/encoder/kernel": [2, 3],
            "bert/encoder/kernel/adam_m": [2, 3],
            "bert/encoder/kernel/adam_v": [2, 3],
            "global_step": [],
        }
        assert made.get_slot(w, "m").op.name == "bert/encoder/kernel/adam_m"
        assert {each.dtype.base_dtype for each in made.variables()} == {tf.float32}


@BOTH
def test_slots_of_a_partitioned_variable_are_saved_part_by_part(optimizer, tmp_path):
    # As with BERT's code, the checkpoint stores w as one tensor of two slices, but stores each slot
    # as two tensors.
    file = str(tmp_path / "model.ckpt")
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", [4, 2], partitioner=v1.fixed_size_partitioner(2))
        step = v1.train.get_or_create_global_step()
        optimizer(0.1).apply_gradients([(tf.ones([2, 2]), part) for part in w], global_step=step)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, file)
    slots = [f"w/part_{part}/adam_{slot}" for part in (0, 1) for slot in "mv"]
    expected = {
        "w": [4, 2],
        "global_step": [],
        **dict.fromkeys(slots, [2, 2]),
    }
    assert dict(tf.train.list_variables(file)) == expected


def test_arguments_are_in_the_originals_order():
    def names(optimizer):
        return list(inspect.signature(optimizer).parameters)

    common = "learning_rate weight_decay_rate beta_1 beta_2 epsilon exclude_from_weight_decay"
    assert names(AdamWeightDecayOptimizer) == common.split() + ["name"]
    more = ["exclude_from_layer_adaptation", "name", "bias_correction"]
    assert names(LAMBOptimizer) == common.split() + more


# With a gradient of 0 and a learning rate of 1, the weight decay of 0.5 halves a variable.


def decays(name, optimizer):
    (value,) = train(optimizer, [1.0], [[0.0]], name)
    assert value in ([0.5], [1.0])
    return value == [0.5]


def test_names_that_do_not_decay():
    excluded = {"exclude_from_weight_decay": ["LayerNorm", "bias$"]}

    def made():
        return AdamWeightDecayOptimizer(1.0, 0.5, **excluded)

    assert not decays("encoder/LayerNorm/gamma", made())
    assert not decays("dense/bias", made())  # "bias$" matches the name without its ":0"
    assert decays("dense/bias_of_more", made())
    assert decays("dense/kernel", AdamWeightDecayOptimizer(1.0, lambda: 0.5))
    assert not decays("dense/kernel", AdamWeightDecayOptimizer(1.0))


def test_lamb_scales_updates_by_name():
    def moved(**arguments):
        optimizer = LAMBOptimizer(0.1, epsilon=0.0, **arguments)
        return train(optimizer, [5.0], [[1.0]])[0] - 5

    np.testing.assert_allclose(moved(), [-0.5], rtol=1e-5)
    np.testing.assert_allclose(moved(exclude_from_weight_decay=["w"]), [-0.1], rtol=1e-5)
    both = {"exclude_from_weight_decay": ["w"], "exclude_from_layer_adaptation": ["v"]}
    np.testing.assert_allclose(moved(**both), [-0.5], rtol=1e-5)


def test_subclasses_choose_what_decays_and_read_the_arguments():
    class Fork(AdamWeightDecayOptimizer):
        def _do_use_weight_decay(self, param_name):
            seen.append(param_name)
            return self.weight_decay_rate == 0.5 and self.exclude_from_weight_decay is None

    seen = []
    assert decays("dense/kernel", Fork(1.0, 0.5))
    assert seen == ["dense/kernel"]
    fork = Fork(1.0)
    fork.weight_decay_rate = 0.5
    assert decays("dense/kernel", fork)
    assert (fork.learning_rate, fork.beta_1, fork.beta_2, fork.epsilon) == (1.0, 0.9, 0.999, 1e-6)


def test_layers_of_keras_are_excluded_by_name():
    block = built_block()
    optimizer = to_keras(
        AdamWeightDecayOptimizer(1.0, 0.5, exclude_from_weight_decay=["LayerNorm"])
    )
    before = [weight.numpy() for weight in block.trainable_variables]
    optimizer.apply_gradients([(tf.zeros(w.shape), w) for w in block.trainable_variables])
    factors = [w.numpy() / old for w, old in zip(block.trainable_variables, before)]
    assert np.all(factors[0] == 1) and np.all(factors[1] == 0.5)


BERTS = ["LayerNorm", "layer_norm", "bias"]


def warnings_of_patterns(optimizer, door, names=("dense/kernel", "dense/bias", "embedding")):
    """Returns the warnings of two steps."""
    with warnings.catch_warnings(record=True) as caught, contextlib.ExitStack() as stack:
        warnings.simplefilter("always")
        if door == "Session":
            stack.enter_context(tf.Graph().as_default())
        optimizer = to_keras(optimizer) if door == "to_keras" else optimizer
        variables = [tf.Variable([1.0], name=name) for name in names]
        for _ in range(2):
            optimizer.apply_gradients([(tf.ones([1]), each) for each in variables])
    return [str(each.message) for each in caught if "matches no" in str(each.message)]


@pytest.mark.parametrize("door", ["Session", "eager", "to_keras"])
def test_patterns_that_match_nothing_give_one_warning(door):
    def found(cls, *args, **patterns):
        return warnings_of_patterns(cls(0.1, *args, **patterns), door)

    quiet = {"exclude_from_weight_decay": BERTS}
    for cls in AdamWeightDecayOptimizer, functools.partial(LAMBOptimizer, bias_correction=False):
        assert found(cls, 0.5, **quiet) == found(cls) == []
        (text,) = found(cls, 0.5, exclude_from_weight_decay=[*BERTS, "bais"])
        assert "exclude_from_weight_decay has 'bais', which matches no variable" in text
        assert "LayerNorm" not in text and "'dense/bias', 'dense/kernel', 'embedding'" in text
        (text,) = found(cls, 0.5, exclude_from_weight_decay=["LayerNorm", "layer_norm"])
        assert "has 'LayerNorm', 'layer_norm', which" in text
    (text,) = found(cls, exclude_from_layer_adaptation=["bais"], **quiet)
    assert "LAMBOptimizer: exclude_from_layer_adaptation has 'bais'" in text
    assert found(LARSOptimizer, skip_list=["bias:0", "dense/"]) == []
    (text,) = found(LARSOptimizer, skip_list=["bias", "LayerNormalization"])
    assert "LARSOptimizer: skip_list has 'LayerNormalization', which" in text


def test_names_are_excluded_from_decay_in_replicas():
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    with strategy.scope():
        variables = [tf.Variable(4.0, name=name) for name in ("kernel", "bias")]
        optimizer = AdamWeightDecayOptimizer(0.25, 0.5, exclude_from_weight_decay=["bias$"])
        optimizer = to_keras(optimizer, api="optimizer_v2")
    pairs = [(tf.constant(0.0), each) for each in variables]
    run_on_all = running.on_replicas(strategy)

    @tf.function
    def step():
        run_on_all(lambda: optimizer.apply_gradients(pairs))

    step()
    assert [each.numpy() for each in variables] == [3.5, 4.0]


class Named(AdamWeightDecayOptimizer):
    def _get_variable_name(self, param_name):
        return (len(param_name), param_name) if len(param_name) > 9 else None

    def _do_use_weight_decay(self, param_name):
        return param_name is None


class Globs(AdamWeightDecayOptimizer):
    def _do_use_weight_decay(self, param_name):
        return self.exclude_from_weight_decay is None


class OwnRates(LARSOptimizer):
    def compute_lr(self, grad, var):
        return self.hyper_for(var).learning_rate, grad


@pytest.mark.filterwarnings("error:.*matches no variable")
def test_subclasses_with_other_patterns_or_names_train_without_a_check():
    def trains(optimizer, patterns=None):
        if patterns is not None:
            optimizer.exclude_from_weight_decay = patterns
        assert warnings_of_patterns(optimizer, "eager") == []

    trains(Named(0.1, 0.5, exclude_from_weight_decay=["bais"]))
    for patterns in ["*b"], [["bias"], ["x"]], lambda name: True, 3:
        trains(Globs(0.1, 0.5), patterns)
    trains(AdamWeightDecayOptimizer(0.1), ["*b"])  # unused: the rate is 0
    trains(OwnRates(0.1, skip_list=["bais"]))


@BOTH
def test_a_sparse_gradient_moves_every_row(optimizer):
    with tf.Graph().as_default():
        table = v1.get_variable("table", initializer=tf.ones([3, 1]))
        rows = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([1, 1]))
        step = v1.train.get_or_create_global_step()
        train_op = optimizer(0.1, 0.5).apply_gradients([(rows, table)], global_step=step)
        values = running.after(train_op, table)
    assert np.all(values < 1) and values[0] == values[2] != values[1]


# The global step. BERT's optimizer does not increment the global step, but BERT's script does.


def as_berts_script(optimizer, variable, step):
    train_op = optimizer.apply_gradients([(tf.ones([1]), variable)], global_step=step)
    with tf.control_dependencies([train_op]):
        return step.assign_add(1)


def without_the_line(optimizer, variable, step):
    return optimizer.apply_gradients([(tf.ones([1]), variable)], global_step=step)


def step_and_warnings(build, optimizer, step_given=True):
    """Returns the global step after one training step, and the `GlobalStepWarning`s."""
    with tf.Graph().as_default(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        variable = v1.get_variable("w", [1])
        step = v1.train.get_or_create_global_step()
        train_op = build(optimizer, variable, step if step_given else None)
        reached = running.after(train_op, step)
        return reached, [w for w in caught if w.category is GlobalStepWarning]


@BOTH
def test_the_step_that_is_passed_advances(optimizer):
    assert step_and_warnings(without_the_line, optimizer(0.1)) == (1, [])
    # `legacy-opt audit` reports the second increment (see
    # tests/source_analysis/test_global_steps.py).
    assert step_and_warnings(as_berts_script, optimizer(0.1)) == (2, [])


def test_lamb_warns_without_a_step_if_it_corrects_the_bias():
    step, (warning,) = step_and_warnings(without_the_line, LAMBOptimizer(0.1), step_given=False)
    assert step == 0 and "increments no global_step" in str(warning.message)
    for made in LAMBOptimizer(0.1, bias_correction=False), AdamWeightDecayOptimizer(0.1):
        assert step_and_warnings(without_the_line, made, step_given=False) == (0, [])


def test_lamb_corrects_the_bias_by_the_step_that_is_passed():
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()  # this global step stays 0
        mine = v1.get_variable("mine", initializer=3, trainable=False)
        w = v1.get_variable("w", initializer=[0.0])
        optimizer = LAMBOptimizer(1.0, beta_1=0.0, beta_2=0.5, epsilon=0.0)
        train_op = optimizer.apply_gradients([(tf.ones([1]), w)], global_step=mine)
        with running.started() as session:
            session.run(train_op)
            # `mine` is 4 after the update, so v = 0.5 is divided by 1 - 0.5**4.
            expected = -1 / np.sqrt(0.5 / (1 - 0.5**4))
            np.testing.assert_allclose(session.run(w), [expected], rtol=1e-6)
            assert session.run(mine) == 4


@BOTH
@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"exclude_from_weight_decay": "bias"}, TypeError, "must be a list of regular expressions"),
        ({"exclude_from_weight_decay": ["("]}, ValueError, "not a valid regular expression"),
        ({"exclude_from_weight_decay": [3]}, TypeError, "contains 3, which is not a string"),
        ({"beta_2": 1.0}, ValueError, "beta_2 must be at least 0 and less than 1"),
        ({"epsilon": -1e-6}, ValueError, "epsilon must not be negative"),
    ],
)
def test_wrong_arguments(optimizer, arguments, error, message):
    with pytest.raises(error, match=message):
        optimizer(0.1, **arguments)
