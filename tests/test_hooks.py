"""The hooks of the package, and TensorFlow's own, in real monitored sessions."""

import glob
import io
import os
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests import running, stepping
from tests import test_run_ways as ways

v1 = tf.compat.v1


def monitored(train_op, hooks, steps, directory=None, steps_between_saves=4):
    """Trains in a monitored session to a global step."""
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=directory,
        hooks=[*hooks, v1.train.StopAtStepHook(last_step=steps)],
        save_checkpoint_steps=steps_between_saves,
        save_summaries_steps=0,
        save_summaries_secs=None,
        log_step_count_steps=0,
        config=running.AS_WRITTEN,
    ) as session:
        while not session.should_stop():
            session.run(train_op)


def written(directory):
    """Returns the numbers in a directory's event files, by tag and step."""
    found = {}
    for path in sorted(glob.glob(os.path.join(str(directory), "events.out*"))):
        for event in v1.train.summary_iterator(path):
            for value in event.summary.value:
                assert (value.tag, event.step) not in found, "written twice"
                found[value.tag, event.step] = value.simple_value
    return found


# --- The progress bar.


def bar(output):
    """Returns what a terminal shows at the end."""
    return output.getvalue().rstrip().split("\r")[-1]


def test_the_bar_shows_steps_loss_and_pace_and_goes_on_where_it_stood(tmp_path):
    for start, last, share in (0, 4, "40%"), (4, 10, "100%"):
        output, model = io.StringIO(), stepping.Stepping()
        with model.graph.as_default():
            train_op = stepping.sgd(0.5).minimize(model.loss, global_step=model.step)
            hook = legacy_opt.ProgressBarHook(
                model.loss, total_steps=10, desc="SGD", file=output, mininterval=0
            )
            monitored(train_op, [hook], last, str(tmp_path))
        pattern = r"SGD: +%s\|.*\| %d/10 \[\d\d:\d\d<.*, +\S+(step/s|s/step), loss=(\S+)\]"
        shown = re.fullmatch(pattern % (share, last), bar(output))
        assert shown, output.getvalue()
        # A step of 0.5 down the gradient [3, 4] takes 12.5; the loss is that before or after it.
        assert float(shown.group(2)) in (2.0 - 12.5 * (last - 1), 2.0 - 12.5 * last)
        assert " %d/10 " % start in output.getvalue().split("\r")[1]


def test_the_bar_takes_the_loss_of_the_collection_or_by_name_or_none():
    for loss, collected, expected in (
        (None, True, "loss=7"),
        (None, False, None),
        ("named", False, "loss=5"),
        ("named:0", True, "loss=5"),
    ):
        output, model = io.StringIO(), stepping.Stepping()
        with model.graph.as_default():
            tf.constant(5.0, name="named")
            if collected:
                v1.losses.add_loss(tf.constant(6.0))
                v1.losses.add_loss(tf.constant(7.0))
            train_op = stepping.sgd().minimize(model.loss, global_step=model.step)
            monitored(train_op, [legacy_opt.ProgressBarHook(loss, file=output)], 2)
        assert "2step [" in bar(output)
        assert re.findall(r"loss=\d", bar(output)) == ([expected] if expected else [])


def test_a_bar_is_used_again_after_a_training_that_failed():
    output, model = io.StringIO(), stepping.Stepping()
    hook = legacy_opt.ProgressBarHook(total_steps=3, file=output)
    with model.graph.as_default():
        gradient = v1.placeholder_with_default(np.float32([1.0, 1.0]), [2])
        checked = v1.debugging.check_numerics(gradient, "no number")
        train_op = stepping.sgd().apply_gradients([(checked, model.w)], global_step=model.step)
        failed = pytest.raises(tf.errors.InvalidArgumentError, match="no number")
        with failed, v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            session.run(train_op)
            session.run(train_op, {gradient: [np.nan, 0.0]})
        # It is finished, and what is printed next stands in a line of its own.
        assert re.search(" [01]/3 ", bar(output)) and output.getvalue().endswith("\n")
        monitored(train_op, [hook], 3)
    assert " 3/3 " in bar(output)


class LosesTheSession(v1.train.SessionRunHook):
    """After three steps, once; it goes on at the last checkpoint, where the lost steps began."""

    def __init__(self, step):
        self.step, self.lost = step, False

    def before_run(self, run_context):
        if run_context.session.run(self.step) == 3 and not self.lost:
            self.lost = True
            raise tf.errors.AbortedError(None, None, "preempted")


def test_a_session_that_is_lost_gets_another_bar(tmp_path):
    output, model = io.StringIO(), stepping.Stepping()
    with model.graph.as_default():
        train_op = stepping.sgd().minimize(model.loss, global_step=model.step)
        hook = legacy_opt.ProgressBarHook(total_steps=6, file=output)
        monitored(
            train_op, [hook, LosesTheSession(model.step)], 6, str(tmp_path), steps_between_saves=2
        )
    lost, another, end = output.getvalue().split("\n")
    assert re.search(" [23]/6 ", lost.split("\r")[-1])
    shown = another.strip("\r").split("\r")
    assert " 2/6 " in shown[0] and " 6/6 " in shown[-1] and not end


def test_losses_of_single_examples():
    """Where the bar looks for the loss it leaves them out; given one it refuses it."""
    output, model = io.StringIO(), stepping.Stepping()
    with model.graph.as_default():
        train_op = stepping.sgd().minimize(model.loss, global_step=model.step)
        v1.losses.add_loss(tf.constant(0.25))
        unknown = v1.placeholder_with_default([1.0, 2.0], None)
        for each in tf.constant([1.0, 2.0]), unknown:
            v1.losses.add_loss(each)
        monitored(train_op, [legacy_opt.ProgressBarHook(file=output)], 1)
        with pytest.raises(ValueError, match=r"loss must be a scalar.*\(2,\)"):
            monitored(train_op, [legacy_opt.ProgressBarHook(unknown, file=output)], 1)
    assert "loss=0.25" in output.getvalue()


def test_what_the_bar_refuses(monkeypatch):
    for arguments, error, text in (
        ({"loss": 3.0}, TypeError, r"^loss must be a tensor, the name of one, or None, got 3\.0"),
        ({"total_steps": 0}, ValueError, "^total_steps must be positive, got 0"),
        ({"total_steps": 2.5}, TypeError, "^total_steps must be an integer"),
        ({"total": 5}, TypeError, "no argument 'total': pass total_steps"),
        ({"initial": 5}, TypeError, "no argument 'initial'"),
        ({"iterable": [1]}, TypeError, "no argument 'iterable'"),
        ({"colr": "red"}, TypeError, "no argument 'colr'"),
    ):
        with pytest.raises(error, match=text):
            legacy_opt.ProgressBarHook(**arguments)
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="ProgressBarHook goes by the global step"):
            legacy_opt.ProgressBarHook().begin()
        v1.train.get_or_create_global_step()
        losses = tf.constant([1.0, 2.0])
        v1.losses.add_loss(losses)
        for loss in losses, losses.name, losses.op.name:
            with pytest.raises(ValueError, match=r"loss must be a scalar.*\(2,\)"):
                legacy_opt.ProgressBarHook(loss).begin()
        with tf.Graph().as_default():
            elsewhere = tf.constant(1.0)
        for loss in elsewhere, "no_such_loss", "no such:loss":
            with pytest.raises(ValueError, match="loss is no tensor of this graph: "):
                legacy_opt.ProgressBarHook(loss).begin()
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # as if it were not installed
    with pytest.raises(ImportError, match="needs tqdm.*pip install tqdm"):
        legacy_opt.ProgressBarHook()


# --- Statistics of slots.


def two_variables(use_resource, optimizer, dtype=tf.float32):
    """Returns a step that trains a table's rows 1 and 2 with the gradients 2 and 3, and a vector.

    The third variable is not trained.
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


@pytest.mark.in_turn
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
        "%s/%s/%s" % (variable, slot, statistic)
        for variable in ("table", "vector")
        for slot in ("accumulator", "accumulator_decay_power")
        for statistic in ("mean", "min", "max")
    }

    def of(step, variable, slot="accumulator"):
        names = ("slots/%s/%s/%s" % (variable, slot, each) for each in ("mean", "min", "max"))
        return [found[name, step] for name in names]

    # 1 + 2^2, 1 + 3^2 and a row that nobody touched; 1 + 1^2 and 1 + 5^2.
    assert of(1, "table") == [pytest.approx((1 + 5 + 10) / 3), 1, 10]
    assert of(1, "vector") == [14, 2, 26]
    # (step + 1) // 2 of the steps 0, 1, 2, 3 is 0, 1, 1, 2: two decays by the fourth step.
    assert of(4, "table", "accumulator_decay_power") == [pytest.approx(4 / 3), 0, 2]
    # A dense gradient tests and counts once, in the first element.
    assert of(5, "vector", "accumulator_decay_power") == [1, 0, 2]


def test_statistics_after_a_session_that_is_lost(tmp_path):
    """They are written at once, and not when the lost steps would have been due again."""
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
    """Returns a step that trains rows 0 and 4 of partitioned resource and ref variables."""
    first, second = (
        v1.get_variable(name, [5, 2], partitioner=v1.fixed_size_partitioner(2), use_resource=use)
        for name, use in (("first", True), ("second", False))
    )
    step = v1.train.get_or_create_global_step()
    rows = [v1.nn.embedding_lookup(each, [0, 4], "div") for each in (first, second)]
    return optimizer.minimize(tf.reduce_sum(rows), step, list(first) + list(second))


@pytest.mark.in_turn
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
    # 3 rows of which one has the gradient 1, and 2 of which one has.
    means = {"part_0": pytest.approx((2 + 1 + 1) / 3), "part_1": (2 + 1) / 2}
    assert {tag: value for (tag, _), value in written(tmp_path).items() if "/mean" in tag} == {
        "slots/%s/%s/accumulator/mean" % (name, part): mean
        for name in ("first", "second")
        for part, mean in means.items()
    }


@pytest.mark.in_turn
@pytest.mark.parametrize("make", [wrapped_in_accumulation, averaged])
def test_statistics_of_what_is_inside_a_wrapper(make, tmp_path):
    made = []
    with tf.Graph().as_default():
        train_op = two_variables(True, lambda step: made.append(make(step)) or made[0])
        monitored(train_op, [legacy_opt.SlotSummaryHook(made[0], str(tmp_path))], 2)
    tags = {tag for tag, step in written(tmp_path) if step == 2}
    assert "slots/table/accumulator/mean" in tags
    other = "gradient_sum" if make is wrapped_in_accumulation else "m"
    assert "slots/vector/%s/mean" % other in tags
    assert ("slots/vector/moving_average/mean" in tags) == (make is averaged)
    assert not any("gradient_rows" in tag for tag in tags)


def test_a_session_may_run_where_its_graph_is_not_the_default_one(tmp_path):
    """Where eager execution is on, as in TensorFlow 2, no writer can be made there."""
    model, adam = stepping.Stepping(), legacy_opt.LazyAdamOptimizer(0.1)
    with model.graph.as_default():
        train_op = adam.minimize(model.loss, global_step=model.step)
        hook = legacy_opt.SlotSummaryHook(adam, str(tmp_path))
        session = v1.train.MonitoredSession(hooks=[hook])
    with session:
        session.run(train_op)
    assert ("slots/w/m/mean", 1) in written(tmp_path)


def test_a_slot_is_read_where_it_lives(tmp_path):
    """On its parameter server, though the worker that builds the graph has other devices."""
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


def test_what_statistics_refuse(tmp_path):
    adam, sgd = legacy_opt.LazyAdamOptimizer(0.1), stepping.sgd()
    hook = legacy_opt.SlotSummaryHook
    for arguments, error, text in (
        ((legacy_opt.LazyAdamOptimizer, "out"), TypeError, "needs an optimizer that has slots"),
        (("Adam", "out"), TypeError, "needs an optimizer that has slots.*'Adam'"),
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
    with tf.Graph().as_default(), pytest.raises(ValueError, match="goes by the global step"):
        hook(adam, str(tmp_path)).begin()


# --- TensorFlow's own.


@pytest.mark.in_turn(5)
@pytest.mark.parametrize("part", range(1, 6), ids="part {}".format)
def test_all_hooks_at_once(part, tmp_path):
    """They train to the bits of a plain Session, every class, a fifth of them at a time."""
    kinds = ways.some(ways.KINDS["in turn"], ways.CLASSES[part - 1 :: 5])
    with tf.Graph().as_default():
        made = ways.models(kinds)
        train_op = ways.minimize(made)
        with v1.Session(config=running.AS_WRITTEN) as session:
            expected = ways.run(session, train_op)
        for last in (4, ways.STEPS):  # the second session goes on from the first one's checkpoint
            monitored(train_op, all_hooks(made, str(tmp_path), last), last, str(tmp_path))
        path = v1.train.latest_checkpoint(str(tmp_path))
    ways.assert_holds(path, expected)
    assert len(glob.glob(str(tmp_path / "timeline-*.json"))) >= 2
    numbers = written(tmp_path)
    # SummarySaverHook looks at the step beside what advances it: all but the first may be one off.
    assert len({step for tag, step in numbers if re.match(r"loss(_\d)?$", tag)}) >= 3
    for each in made:
        scope = "slots/%s/" % ways.scope(each.name)
        steps = {step for tag, step in numbers if tag.startswith(scope)}
        assert steps == ({1, 4, 5, 9, 11} if each.optimizer.get_slot_names() else set()), each.name


def all_hooks(made, directory, last):
    """Returns one of each kind; those that save checkpoints are the session's own."""
    train, loss = v1.train, tf.add_n([each.loss for each in made])
    slots = [
        legacy_opt.SlotSummaryHook(each.optimizer, directory, every_n_steps=4)
        for each in made
        if each.optimizer.get_slot_names()
    ]
    return slots + [
        train.LoggingTensorHook({"loss": loss}, every_n_iter=4, at_end=True),
        train.NanTensorHook(loss),
        train.StepCounterHook(4, output_dir=directory),
        train.SummarySaverHook(4, output_dir=directory, summary_op=v1.summary.scalar("loss", loss)),
        train.ProfilerHook(save_steps=4, output_dir=directory),
        legacy_opt.ProgressBarHook(loss, total_steps=last, disable=True),
    ]


@pytest.mark.in_turn
@pytest.mark.parametrize("checked", [False, True])
def test_a_loss_that_is_no_number_stops_the_training(checked, tmp_path):
    """NanTensorHook sees it after the step, and after the savers; `check_numerics` before."""
    with tf.Graph().as_default():
        w, step = stepping.variable("w", [1.0, 1.0]), v1.train.get_or_create_global_step()
        factor = tf.where(tf.equal(step.read_value(), 2), np.float32(np.nan), np.float32(1))
        loss = tf.reduce_sum(w) * factor
        if checked:
            loss = v1.debugging.check_numerics(loss, "loss")
        train_op = legacy_opt.AdagradDecayOptimizer(1.0, step).minimize(loss, step)
        error = tf.errors.InvalidArgumentError if checked else v1.train.NanLossDuringTrainingError
        output = io.StringIO()
        hooks = [legacy_opt.ProgressBarHook(loss, file=output), v1.train.NanTensorHook(loss)]
        with pytest.raises(error):
            monitored(train_op, hooks, 9, str(tmp_path), 1)
        assert ("loss=nan" in bar(output)) != checked
    last = v1.train.load_checkpoint(v1.train.latest_checkpoint(str(tmp_path)))
    assert last.get_tensor("global_step") == (2 if checked else 3)
    for name in ("w", "w/AdagradDecay"):
        assert np.all(np.isfinite(last.get_tensor(name))) == checked
