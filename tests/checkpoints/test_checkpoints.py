"""Tests that training with AdagradDecay continues from a checkpoint as if it had not stopped.

The checkpoints are name-based (`tf.compat.v1.train.Saver`) or object-based (`tf.train.Checkpoint`).
tests/tools/handover.py continues training on another TensorFlow version. The last tests call
functions of handover.py with checkpoints of the installed TensorFlow.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2
from tests.support.running import REF_AND_RESOURCE
from tests.tools import handover
from tests.tools.handover import ARGUMENTS, Batch, Model, assert_equal, decaying, read_all

v1 = tf.compat.v1
# The number of training steps before the checkpoint, in a Session and without a Session. The same
# number of steps follows after the checkpoint. The accumulator decays twice before the checkpoint
# and twice after it.
STEPS, EAGER_STEPS = 14, 6

LAYOUTS = [AdagradDecayOptimizer, AdagradDecayOptimizerV2]
BOTH = pytest.mark.parametrize("optimizer", LAYOUTS)
CHECKPOINTS = {"tf": tf.train.Checkpoint, "v1": v1.train.Checkpoint}
WAYS = {"eager": lambda f: f, "function": tf.function}


# Name-based checkpoints, in a Session.


class PartitionedModel(Model):
    """A least-squares problem as in `handover.Model`, with a partitioned table and any optimizer.

    Args:
      make_optimizer: a function from the global step variable to an optimizer.
      use_resource: whether to create resource variables instead of ref variables.
      scope: the variable scope in which the optimizer is created.
    """

    def __init__(self, make_optimizer, use_resource, scope=None):
        self.step = v1.train.get_or_create_global_step()
        self.batch = Batch.placeholders()
        with v1.variable_scope("deep/input", use_resource=use_resource):
            table = v1.get_variable(
                "table",
                [handover.ROWS, handover.OUTPUTS],
                initializer=v1.zeros_initializer(),
                partitioner=v1.fixed_size_partitioner(3),
            )
            dense = v1.get_variable(
                "dense", [handover.INPUTS, handover.OUTPUTS], initializer=v1.ones_initializer()
            )
        rows = v1.nn.embedding_lookup(table, self.batch.ids, partition_strategy="div")
        error = rows + tf.matmul(self.batch.inputs, dense) - self.batch.targets
        with v1.variable_scope(scope or v1.get_variable_scope()):
            self.train_op = make_optimizer(self.step).minimize(
                tf.reduce_sum(tf.square(error)),
                global_step=self.step,
                gate_gradients=v1.train.Optimizer.GATE_GRAPH,
            )


def tensors_of(path):
    """Returns {name: (dtype, shape)} of a checkpoint."""
    reader = tf.train.load_checkpoint(path)
    dtypes = reader.get_variable_to_dtype_map()
    return {
        name: (dtypes[name], tuple(shape))
        for name, shape in reader.get_variable_to_shape_map().items()
    }


def saved_by(make_optimizer, use_resource, scope, path):
    """Saves an untrained `PartitionedModel`. Returns the result of `tensors_of`."""
    with tf.Graph().as_default():
        PartitionedModel(make_optimizer, use_resource, scope)
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            return tensors_of(v1.train.Saver().save(sess, str(path)))


@REF_AND_RESOURCE
@BOTH
def test_the_names_in_a_saver_checkpoint(optimizer, use_resource, tmp_path):
    found = saved_by(lambda step: optimizer(0.3, step), use_resource, None, tmp_path / "model")
    per_row = optimizer is AdagradDecayOptimizerV2
    assert found == {
        "global_step": (tf.int64, ()),
        "deep/input/dense": (tf.float32, (5, 3)),
        "deep/input/dense/AdagradDecay": (tf.float32, (5, 3)),
        "deep/input/dense/AdagradDecay_1": (tf.int64, (5,) if per_row else (5, 3)),
        "deep/input/table": (tf.float32, (9, 3)),
        "deep/input/table/AdagradDecay": (tf.float32, (9, 3)),
        "deep/input/table/AdagradDecay_1": (tf.int64, (9,) if per_row else (9, 3)),
    }


@REF_AND_RESOURCE
@BOTH
@pytest.mark.parametrize("scope", [None, "OptimizeLoss"])
def test_slots_are_named_as_in_stock_adagrad(optimizer, use_resource, scope, tmp_path):
    stock = saved_by(
        lambda _: v1.train.AdagradOptimizer(0.3), use_resource, scope, tmp_path / "stock"
    )
    ours = saved_by(lambda step: optimizer(0.3, step), use_resource, scope, tmp_path / "ours")
    expected = {name.replace("/Adagrad", "/AdagradDecay"): stock[name] for name in stock}
    counts = {name + "_1" for name in expected if name.endswith("/AdagradDecay")}
    assert {name: ours[name] for name in ours if name not in counts} == expected
    assert set(ours) == set(expected) | counts


def steps_with_and_without_a_pause(make_model, path):
    """Returns the values after each step of the second half of an unbroken and a restored run."""
    with tf.Graph().as_default(), v1.Session() as sess:
        model = make_model()
        sess.run(v1.global_variables_initializer())
        for step in range(STEPS):
            model.train(sess, step)
        saved = v1.train.Saver().save(sess, path)
        unbroken = [trained(model, sess, step) for step in range(STEPS, 2 * STEPS)]
    with tf.Graph().as_default(), v1.Session() as sess:
        model = make_model()
        v1.train.Saver().restore(sess, saved)
        restored = [trained(model, sess, step) for step in range(STEPS, 2 * STEPS)]
    return unbroken, restored


def trained(model, sess, step):
    model.train(sess, step)
    return read_all(sess)


def assert_same_steps(actual, expected):
    assert len(actual) == len(expected) > 0
    for number, (one, other) in enumerate(zip(actual, expected)):
        assert_equal(one, other, f"step {number}")


def test_training_continues_from_a_saver_checkpoint(tmp_path):
    unbroken, restored = steps_with_and_without_a_pause(
        lambda: Model(decaying), str(tmp_path / "model")
    )
    assert_same_steps(restored, unbroken)
    assert unbroken[-1]["layout_1/ref/dense/AdagradDecay_1"].max() > 3, "too few decays"


@REF_AND_RESOURCE
@BOTH
@pytest.mark.parametrize("scope", [None, "OptimizeLoss"])
def test_training_continues_with_a_partitioned_table(optimizer, use_resource, scope, tmp_path):
    unbroken, restored = steps_with_and_without_a_pause(
        lambda: PartitionedModel(
            lambda step: optimizer(global_step=step, **ARGUMENTS), use_resource, scope
        ),
        str(tmp_path / "model"),
    )
    assert_same_steps(restored, unbroken)


def test_training_continues_in_a_monitored_training_session(tmp_path):
    def run(directory, last):
        """Returns the global step at the start, and the values in the last checkpoint."""
        with tf.Graph().as_default():
            model = Model(decaying)
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(directory),
                hooks=[v1.train.StopAtStepHook(last_step=last)],
                save_summaries_steps=None,
                log_step_count_steps=None,
            ) as sess:
                first = step = sess.run(model.step)
                while not sess.should_stop():
                    model.train(sess, step)
                    step += 1
        reader = tf.train.load_checkpoint(str(directory))
        return first, {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}

    _, expected = run(tmp_path / "unbroken", 2 * STEPS)
    first, _ = run(tmp_path / "broken", STEPS)
    assert first == 0
    first, values = run(tmp_path / "broken", 2 * STEPS)
    assert first == STEPS
    assert values["global_step"] == 2 * STEPS
    assert_equal(values, expected, "the end")


# Object-based checkpoints.


class EagerModel:
    """A least-squares problem as in `handover.Model`, with eager variables and frequent decays.

    Args:
      optimizer: the class of the optimizer.
      wrap: a decorator for the training function, such as `tf.function`.
      start: the initial value of the variables.
    """

    def __init__(self, optimizer, wrap, start=1.0):
        self.table = tf.Variable(tf.fill([handover.ROWS, handover.OUTPUTS], start), name="table")
        self.dense = tf.Variable(tf.fill([handover.INPUTS, handover.OUTPUTS], start), name="dense")
        self.step = tf.Variable(0, dtype=tf.int64, name="global_step", trainable=False)
        arguments = dict(ARGUMENTS, accumulator_decay_step=EAGER_STEPS // 2)
        self.optimizer = optimizer(global_step=self.step, **arguments)
        self._train = wrap(self._one_step)

    def _one_step(self, ids, inputs, targets):
        variables = [self.table, self.dense]
        with tf.GradientTape() as tape:
            error = tf.gather(self.table, ids) + tf.matmul(inputs, self.dense) - targets
            loss = tf.reduce_sum(tf.square(error))
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables), global_step=self.step)

    def train(self, step):
        self._train(*(tf.constant(array) for array in Batch.at(step)))
        return self.values()

    def values(self):
        values = {"step": self.step.numpy()}
        for name, variable in self.variables().items():
            values[name] = variable.numpy()
            for slot in self.optimizer.get_slot_names():
                values[name + "/" + slot] = self.optimizer.get_slot(variable, slot).numpy()
        return values

    def variables(self):
        return {"table": self.table, "dense": self.dense}


def into_slots_that_exist(model, checkpoint, path):
    model.train(0)
    return checkpoint(optimizer=model.optimizer, step=model.step, **model.variables()).restore(path)


def before_there_are_slots(model, checkpoint, path):
    return checkpoint(optimizer=model.optimizer, step=model.step, **model.variables()).restore(path)


def before_there_are_variables(model, checkpoint, path):
    root = checkpoint(optimizer=model.optimizer, step=model.step)
    status = root.restore(path)
    for name, variable in model.variables().items():
        setattr(root, name, variable)
    return status


@pytest.mark.pairwise(
    restore=[into_slots_that_exist, before_there_are_slots, before_there_are_variables],
    optimizer=LAYOUTS,
    checkpoint=CHECKPOINTS,
    way=WAYS,
)
def test_training_continues_from_an_object_based_one(optimizer, checkpoint, way, restore, tmp_path):
    checkpoint, wrap = CHECKPOINTS[checkpoint], WAYS[way]
    model = EagerModel(optimizer, wrap)
    for step in range(EAGER_STEPS):
        model.train(step)
    saved = checkpoint(optimizer=model.optimizer, step=model.step, **model.variables())
    path = saved.save(str(tmp_path / "objects"))
    at_pause = model.values()
    unbroken = [model.train(step) for step in range(EAGER_STEPS, 2 * EAGER_STEPS)]

    model = EagerModel(optimizer, wrap, start=0.0)
    status = restore(model, checkpoint, path)
    # All values must be restored before the next training step, because a user may save them
    # before that step.
    assert_equal(model.values(), at_pause, "restored")
    restored = [model.train(step) for step in range(EAGER_STEPS, 2 * EAGER_STEPS)]
    status.assert_existing_objects_matched()
    assert_same_steps(restored, unbroken)
    per_row = optimizer is AdagradDecayOptimizerV2
    counts = restored[-1]["table/accumulator_decay_power"]
    assert counts.dtype == np.int64 and counts.shape == ((9,) if per_row else (9, 3))


def test_training_continues_from_an_object_based_one_in_a_session(tmp_path):
    def build():
        model = Model(decaying)
        tracked = {name.replace("/", "_"): model.variables[name] for name in model.variables}
        layouts = {f"layout_{i}": model.optimizers[f"layout_{i}/ref/dense"] for i in (1, 2)}
        return model, v1.train.Checkpoint(step=model.step, **tracked, **layouts)

    with tf.Graph().as_default(), v1.Session() as sess:
        model, saved = build()
        sess.run(v1.global_variables_initializer())
        sess.run(saved.save_counter.initializer)
        for step in range(STEPS):
            model.train(sess, step)
        path = saved.save(str(tmp_path / "objects"), session=sess)
        unbroken = [trained(model, sess, step) for step in range(STEPS, 2 * STEPS)]
    with tf.Graph().as_default(), v1.Session() as sess:
        model, saved = build()
        saved.restore(path).initialize_or_restore(sess)
        restored = [trained(model, sess, step) for step in range(STEPS, 2 * STEPS)]
    assert_same_steps(restored, unbroken)


# Checkpoints for another version of TensorFlow.


def test_a_handover_within_one_tensorflow_is_exact(tmp_path):
    handover.write(tmp_path / "there")
    report = handover.continue_from(tmp_path / "there", tmp_path / "back")
    assert report.endswith("variables 0.0e+00, accumulators 0.0e+00")
    assert handover.continue_from(tmp_path / "back", tmp_path / "home").endswith("0.0e+00")


@pytest.mark.full
@pytest.mark.parametrize(
    "key, change, message",
    [
        ("saved/layout_1/ref/table", lambda a: np.nextafter(a, np.float32(9)), "restored"),
        ("saved/layout_2/ref/table/AdagradDecay_1", lambda a: a + 1, "restored"),
        ("later/layout_1/ref/dense", lambda a: a + np.float32(1e-4), "dense"),
        ("later/layout_1/ref/dense/AdagradDecay_1", lambda a: a + 1, "AdagradDecay_1"),
    ],
)
def test_a_wrong_handover_is_detected(key, change, message, tmp_path):
    there = tmp_path / "there"
    handover.write(there)
    with np.load(str(there / "values.npz")) as file:
        arrays = dict(file)
    arrays[key] = change(arrays[key])
    np.savez(str(there / "values.npz"), **arrays)
    with pytest.raises(AssertionError, match=message):
        handover.continue_from(there, tmp_path / "back")
