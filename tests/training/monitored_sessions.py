"""Runs a MonitoredTrainingSession with hooks; reads the summaries that hooks have written."""

import glob
import os

import tensorflow as tf

from tests.support import running

v1 = tf.compat.v1


def monitored(train_op, hooks, steps, directory=None, steps_between_saves=4):
    """Trains in a MonitoredTrainingSession until the global step is `steps`."""
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
    """Returns a dict from (tag, global step) to the scalars in a directory's event files."""
    found = {}
    for path in sorted(glob.glob(os.path.join(str(directory), "events.out*"))):
        for event in v1.train.summary_iterator(path):
            for value in event.summary.value:
                assert (value.tag, event.step) not in found, "written twice"
                found[value.tag, event.step] = value.simple_value
    return found


class LosesTheSession(v1.train.SessionRunHook):
    """Raises AbortedError once, at global step 3, so that the session restores a checkpoint."""

    def __init__(self, step):
        self.step, self.lost = step, False

    def before_run(self, run_context):
        if run_context.session.run(self.step) == 3 and not self.lost:
            self.lost = True
            raise tf.errors.AbortedError(None, None, "preempted")
