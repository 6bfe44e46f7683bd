"""Tests the statistics of slots that SlotSummaryHook writes in real monitored sessions."""

import pytest
import tensorflow as tf

import legacy_opt
from tests.support import stepping
from tests.training.monitored_sessions import LosesTheSession, monitored, written

v1 = tf.compat.v1


def two_variables(use_resource, optimizer, dtype=tf.float32):
    """Returns a train_op for two variables; a third variable is not trained.

    The variable `vector` has the gradient [1, 5]. Rows 1 and 2 of `table` have the gradients 2 and
    3.
    """
    table = stepping.variable("table", [[1.0], [1.0], [1.0]], use_resource, dtype)
    vector = stepping.variable("vector", [1.0, 1.0], use_resource, dtype)
    stepping.variable("other", [1.0], use_resource, dtype)
    step = v1.train.get_or_create_global_step()
    rows = tf.constant([[2.0], [3.0]], dtype)
    pairs = [
        (tf.IndexedSlices(rows, tf.constant([1, 2]), table.shape), table),
        (tf.constant([1.0, 5.0], dtype), vector),
    ]
    return optimizer(step).apply_gradients(pairs, global_step=step)


@pytest.mark.parametrize("use_resource", [False, True])
def test_statistics_of_slots_are_those_after_the_step(use_resource, tmp_path):
    made = []

    def optimizer(step):
        made.append(
            legacy_opt.AdagradDecayOptimizerV2(
                0.1, step, initial_accumulator_value=1.0, accumulator_decay_step=2
            )
        )
        return made[0]

    with tf.Graph().as_default():
        train_op = two_variables(use_resource, optimizer)
        hook = legacy_opt.SlotSummaryHook(made[0], tmp_path, every_n_steps=3)
        monitored(train_op, [hook], 5)
    found = written(tmp_path)
    assert {step for _, step in found} == {1, 4, 5}
    statistics = {name.split("/", 1)[1] for name, _ in found}
    assert statistics == {
        f"{variable}/{slot}/{statistic}"
        for variable in ("table", "vector")
        for slot in ("accumulator", "accumulator_decay_power")
        for statistic in ("mean", "min", "max")
    }

    def of(step, variable, slot="accumulator"):
        names = (f"slots/{variable}/{slot}/{each}" for each in ("mean", "min", "max"))
        return [found[name, step] for name in names]

    # After one step, the table's accumulator is [1, 1 + 2^2, 1 + 3^2], and the vector's accumulator
    # is [1 + 1^2, 1 + 5^2].
    assert of(1, "table") == [pytest.approx((1 + 5 + 10) / 3), 1, 10]
    assert of(1, "vector") == [14, 2, 26]
    # The number of decays due is (global_step + 1) // 2: 0, 1, 1, 2 in the first four steps. So the
    # accumulators of two rows have decayed twice after the fourth training step.
    assert of(4, "table", "accumulator_decay_power") == [pytest.approx(4 / 3), 0, 2]
    # With dense gradients, only the first element of the slot contains the number of decays.
    assert of(5, "vector", "accumulator_decay_power") == [1, 0, 2]


def test_statistics_after_a_session_is_recreated(tmp_path):
    """The new session writes statistics after its first step; it does not wait `every_n_steps`."""
    model = stepping.Stepping()
    with model.graph.as_default():
        optimizer = v1.train.AdagradOptimizer(0.1)
        train_op = optimizer.minimize(model.loss, global_step=model.step)
        hooks = [legacy_opt.SlotSummaryHook(optimizer, tmp_path), LosesTheSession(model.step)]
        monitored(train_op, hooks, 6, str(tmp_path), steps_between_saves=2)
    events = [step for tag, step in written(tmp_path) if tag.startswith("slots/")]
    assert sorted(set(events)) == [1, 3, 6]


def test_statistics_of_16_bits_and_of_chosen_slots(tmp_path):
    made = []

    def optimizer(step):
        del step
        made.append(legacy_opt.LazyAdamOptimizer(0.1))
        return made[0]

    with tf.Graph().as_default():
        train_op = two_variables(True, optimizer, tf.float16)
        hook = legacy_opt.SlotSummaryHook(made[0], str(tmp_path), slots=["m"])
        monitored(train_op, [hook], 1)
    found = written(tmp_path)
    assert {name.split("/")[-2] for name, _ in found} == {"m"}
    assert found["slots/vector/m/mean", 1] == pytest.approx(0.1 * (1 + 5) / 2, rel=1e-3)


def wrapped_in_accumulation(step):
    decay = legacy_opt.AdagradDecayOptimizer(0.1, step)
    return legacy_opt.GradientAccumulationOptimizer(decay, steps=2)


def routed(step):
    decay = legacy_opt.AdagradDecayOptimizer(0.1, step)
    adam = legacy_opt.LazyAdamOptimizer(0.1)
    return legacy_opt.MultiOptimizer([(decay, "table")], default=adam)


def averaged(step):
    return legacy_opt.MovingAverageOptimizer(routed(step))


def in_parts(optimizer):
    """Returns a train_op for rows 0 and 4 of a partitioned resource and a partitioned ref variable.

    The gradient of each of these rows is 1.
    """
    first, second = (
        v1.get_variable(name, [5, 2], partitioner=v1.fixed_size_partitioner(2), use_resource=use)
        for name, use in (("first", True), ("second", False))
    )
    step = v1.train.get_or_create_global_step()
    rows = [v1.nn.embedding_lookup(each, [0, 4], "div") for each in (first, second)]
    return optimizer.minimize(tf.reduce_sum(rows), step, list(first) + list(second))


@pytest.mark.parametrize(
    "optimizer",
    [v1.train.AdagradOptimizer(0.1, 1.0), legacy_opt.AdagradDecayOptimizer(0.1, None, 1.0)],
    ids=["stock", "ours"],
)
def test_statistics_of_the_parts_of_a_variable(optimizer, tmp_path):
    with tf.Graph().as_default():
        train_op = in_parts(optimizer)
        hook = legacy_opt.SlotSummaryHook(optimizer, str(tmp_path), slots=["accumulator"])
        monitored(train_op, [hook], 1)
    # Accumulators start at 1. One of the 3 rows of part_0 has the gradient 1, and one of the 2 rows
    # of part_1 has the gradient 1.
    means = {"part_0": pytest.approx((2 + 1 + 1) / 3), "part_1": (2 + 1) / 2}
    assert {tag: value for (tag, _), value in written(tmp_path).items() if "/mean" in tag} == {
        f"slots/{name}/{part}/accumulator/mean": mean
        for name in ("first", "second")
        for part, mean in means.items()
    }


@pytest.mark.parametrize("make", [wrapped_in_accumulation, averaged])
def test_statistics_of_a_nested_optimizer(make, tmp_path):
    made = []
    with tf.Graph().as_default():
        train_op = two_variables(True, lambda step: made.append(make(step)) or made[0])
        monitored(train_op, [legacy_opt.SlotSummaryHook(made[0], str(tmp_path))], 2)
    tags = {tag for tag, step in written(tmp_path) if step == 2}
    assert "slots/table/accumulator/mean" in tags
    other = "gradient_sum" if make is wrapped_in_accumulation else "m"
    assert f"slots/vector/{other}/mean" in tags
    assert ("slots/vector/moving_average/mean" in tags) == (make is averaged)
    assert not any("gradient_rows" in tag for tag in tags)


def test_a_session_may_run_while_its_graph_is_not_the_default(tmp_path):
    """The hook must create its summary writer in `begin`, inside of the graph.

    Outside of the graph, TensorFlow executes eagerly and cannot create the writer.
    """
    model, adam = stepping.Stepping(), legacy_opt.LazyAdamOptimizer(0.1)
    with model.graph.as_default():
        train_op = adam.minimize(model.loss, global_step=model.step)
        hook = legacy_opt.SlotSummaryHook(adam, str(tmp_path))
        session = v1.train.MonitoredSession(hooks=[hook])
    with session:
        session.run(train_op)
    assert ("slots/w/m/mean", 1) in written(tmp_path)


def test_a_slot_is_read_on_its_device(tmp_path):
    """The hook's operations that read a slot are placed on the slot's parameter server."""
    for use_resource in False, True:
        adam, devices = legacy_opt.LazyAdamOptimizer(0.1), set()
        setter = v1.train.replica_device_setter(ps_tasks=3)
        with tf.Graph().as_default() as graph, graph.device(setter):
            two_variables(use_resource, lambda step, adam=adam: adam)
            legacy_opt.SlotSummaryHook(adam, tmp_path).begin()
        for operation in graph.get_operations():
            if operation.name.startswith("SlotSummaryHook/"):
                devices.add(operation.device)
                assert {each.op.device for each in operation.inputs} <= {operation.device}
        assert devices == {"/job:ps/task:0", "/job:ps/task:1"}


def test_errors_of_statistics(tmp_path):
    adam, sgd = legacy_opt.LazyAdamOptimizer(0.1), stepping.sgd()
    hook = legacy_opt.SlotSummaryHook
    for arguments, error, text in (
        ((legacy_opt.LazyAdamOptimizer, "out"), TypeError, "needs an optimizer with slots"),
        (("Adam", "out"), TypeError, "needs an optimizer with slots.*'Adam'"),
        ((adam, None), TypeError, "^output_dir must be a string, got None"),
        ((adam, ""), ValueError, "^output_dir must not be empty"),
        ((adam, "out", 0), ValueError, "^every_n_steps must be positive"),
        ((adam, "out", 1.5), TypeError, "^every_n_steps must be an integer"),
        ((adam, "out", 1, "m"), TypeError, r"^slots must be a list of names, got 'm': write \['m'"),
    ):
        with pytest.raises(error, match=text):
            hook(*arguments)
    model = stepping.Stepping()
    with model.graph.as_default():
        stepping.sgd().minimize(model.loss, global_step=model.step)
        with pytest.raises(ValueError, match="GradientDescentOptimizer has no slots in.*none"):
            hook(sgd, str(tmp_path)).begin()
        adam.minimize(model.loss)
        with pytest.raises(ValueError, match="has no slots momentum in this graph; it has m, v"):
            hook(adam, str(tmp_path), slots=["m", "momentum"]).begin()
    with tf.Graph().as_default(), pytest.raises(ValueError, match="reads the global step"):
        hook(adam, str(tmp_path)).begin()
