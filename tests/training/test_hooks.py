"""Tests the progress bar and TensorFlow's own hooks in real monitored sessions."""

import glob
import io
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support import running, stepping
from tests.support import training_ways as ways
from tests.training.monitored_sessions import LosesTheSession, monitored, written

v1 = tf.compat.v1


# --- The progress bar.


def bar(output):
    """Returns the progress bar that a terminal shows at the end."""
    return output.getvalue().rstrip().split("\r")[-1]


def test_the_bar_shows_steps_loss_and_speed_and_resumes_at_its_step(tmp_path):
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
        # With the learning rate 0.5 and the gradient [3, 4], each training step lowers the loss by
        # 12.5. The bar shows the loss before or after the last step.
        assert float(shown.group(2)) in (2.0 - 12.5 * (last - 1), 2.0 - 12.5 * last)
        assert f" {start}/10 " in output.getvalue().split("\r")[1]


def test_the_loss_of_the_collection_or_by_name_or_none():
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


def test_a_hook_is_reused_after_a_training_that_failed():
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
        # The bar is closed: it ends with a newline.
        assert re.search(" [01]/3 ", bar(output)) and output.getvalue().endswith("\n")
        monitored(train_op, [hook], 3)
    assert " 3/3 " in bar(output)


def test_a_recreated_session_gets_a_new_bar(tmp_path):
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
    """In the collection of losses, the hook ignores tensors with several elements.

    A `loss` argument with several elements raises an error.
    """
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


def test_errors_of_the_bar(monkeypatch):
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
        with pytest.raises(ValueError, match="ProgressBarHook reads the global step"):
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
            with pytest.raises(ValueError, match="loss is not a tensor of this graph: "):
                legacy_opt.ProgressBarHook(loss).begin()
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # as if tqdm were not installed
    with pytest.raises(ImportError, match="needs tqdm.*pip install tqdm"):
        legacy_opt.ProgressBarHook()


# --- TensorFlow's hooks.


@pytest.mark.parametrize("part", range(1, 6), ids="part {}".format)
def test_all_hooks_at_once(part, tmp_path):
    """Every optimizer class computes the same bits with hooks as in a plain Session.

    Each of the five parts tests a fifth of the classes.
    """
    kinds = ways.some(ways.KINDS["in turn"], ways.CLASSES[part - 1 :: 5])
    with tf.Graph().as_default():
        made = ways.models(kinds)
        train_op = ways.minimize(made)
        with v1.Session(config=running.AS_WRITTEN) as session:
            expected = ways.run(session, train_op)
        for last in (4, ways.STEPS):  # the second session restores a checkpoint
            monitored(train_op, all_hooks(made, str(tmp_path), last), last, str(tmp_path))
        path = v1.train.latest_checkpoint(str(tmp_path))
    ways.assert_holds(path, expected)
    assert len(glob.glob(str(tmp_path / "timeline-*.json"))) >= 2
    numbers = written(tmp_path)
    # SummarySaverHook reads the global step in the same Session.run that increments it. Therefore
    # the steps in its events, except the first step, may be off by 1.
    assert len({step for tag, step in numbers if re.match(r"loss(_\d)?$", tag)}) >= 3
    for each in made:
        scope = f"slots/{ways.scope(each.name)}/"
        steps = {step for tag, step in numbers if tag.startswith(scope)}
        assert steps == ({1, 4, 5, 9, 11} if each.optimizer.get_slot_names() else set()), each.name


def all_hooks(made, directory, last):
    """Returns hooks of seven classes; each optimizer with slots has its own SlotSummaryHook."""
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


@pytest.mark.parametrize("checked", [False, True])
def test_a_loss_that_is_not_finite_stops_the_training(checked, tmp_path):
    """The last checkpoint contains NaN with NanTensorHook alone, but not with `check_numerics`.

    NanTensorHook stops the training after the update and after the checkpoint is saved.
    `check_numerics` raises an error before the update.
    """
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
