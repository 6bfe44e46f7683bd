"""Eight Python threads run the same train op: tests with what no update is lost.

This depends on the optimizer, the kind of the variables and `use_locking`.
"""

import pytest
import tensorflow as tf

import legacy_opt
from tests.optimizers import non_finite
from tests.support import threads

v1 = tf.compat.v1
CELLS = pytest.mark.pairwise(
    name=list(threads.COUNTED), use_resource=[False, True], use_locking=[False, True]
)
NO_LOCKS = pytest.mark.filterwarnings("ignore::legacy_opt.UseLockingWarning")


@NO_LOCKS
@CELLS
def test_eight_threads(name, use_resource, use_locking, full):
    lost = threads.train(
        threads.COUNTED[name], use_resource, use_locking, steps=3000 if full else 100
    )
    # No update is applied twice.
    assert min(lost) >= 0
    # If the global step is a ref variable, TensorFlow's optimizers increment it without a lock, so
    # increments may be lost.
    if use_resource or not name.startswith("tf."):
        assert lost.global_step == 0
    is_kernel = name in ("AdagradDecay", "tf.train.Adagrad")
    if use_resource and (is_kernel or name == "a rule that returns an Addition"):
        assert lost.dense == 0
    if use_locking and is_kernel:
        assert (lost.dense, lost.sparse) == (0, 0)


ADVANCING = {
    **non_finite.optimizers(),
    **non_finite.wrappers(),  # wrappers around TensorFlow's optimizers
    "extended": lambda step: legacy_opt.extend_with_decoupled_weight_decay(v1.train.AdamOptimizer)(
        0.1, 0.1
    ),
}


@NO_LOCKS
@pytest.mark.parametrize("name", ADVANCING)
def test_the_global_step_is_advanced_under_its_lock(name):
    with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=False):
        w = v1.get_variable("w", [2, 2])
        step = v1.train.get_or_create_global_step()
        ADVANCING[name](step).apply_gradients([(tf.ones([2, 2]), w)], global_step=step)
    adds = [each for each in graph.get_operations() if each.type == "AssignAdd"]
    locks = [each.get_attr("use_locking") for each in adds if variable_of(each) == step.op]
    assert locks == [True]


def variable_of(operation):
    """Returns the variable that an operation writes; the operation may be in a tf.cond."""
    source = operation.inputs[0].op
    while source.type == "RefSwitch":
        source = source.inputs[0].op
    return source


def test_errors_of_threads_are_raised():
    with pytest.raises(ZeroDivisionError):
        threads.in_threads(lambda: 1 / 0)
