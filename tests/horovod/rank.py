"""Trains with each optimizer in one rank of Horovod, and writes the results for check.py.

    python -m tests.horovod.rank PORT FOLDER NAME...

The ranks start from different values. In the middle of each training, rank 0 writes a checkpoint.
All ranks then close their sessions and continue in new sessions. Rank 0 restores the checkpoint,
and broadcasts the restored values to the other ranks.
"""

import os
import sys

import numpy as np
import tensorflow as tf

from benchmarks import horovod_ranks
from legacy_opt.compat import estimator
from tests.horovod import trainings
from tests.support import running
from tests.support.pages import python_blocks
from tests.support.paths import EXAMPLES, ROOT

sys.path.insert(0, str(EXAMPLES))

from flights.processes import my_place, stop_with_parent

v1 = tf.compat.v1
IN_ESTIMATOR = "Estimator: "
PAGE = "docs/clusters.md"


def train_in_sessions(hvd, name, way, folder):
    """Trains in two MonitoredTrainingSessions. Returns a dict like that of `trainings.train`."""
    found = {}
    for part in trainings.parts(name, way):
        found.update(
            trainings.train(
                trainings.problem_of(hvd.rank()),
                name,
                way,
                hvd.DistributedOptimizer,
                part,
                hooks=[hvd.BroadcastGlobalVariablesHook(0)],
                checkpoint_dir=folder if hvd.rank() == 0 else None,
                save_checkpoint_steps=trainings.STEPS,
                save_checkpoint_secs=None,
            )
        )
    return found


class KeepValues(v1.train.SessionRunHook):
    """At the end of a training, stores the values of all global variables in the dict `found`."""

    def __init__(self, found):
        self.found = found

    def begin(self):
        self.variables = {variable.op.name: variable for variable in v1.global_variables()}

    def end(self, session):
        self.found.update(session.run(self.variables))


def train_in_an_estimator(hvd, name, way, folder):
    """Trains with two calls of `Estimator.train`; returns the final values of all variables."""
    problem, found = trainings.problem_of(hvd.rank()), {}
    specs = running.signature(problem)

    def model_fn(features, labels, mode):
        graph = trainings.Graph(problem, name, way, hvd.DistributedOptimizer, features)
        return estimator.EstimatorSpec(mode, loss=graph.loss, train_op=graph.train_op)

    for number, part in enumerate(trainings.parts(name, way)):
        gradients = [running._plain(each) for each in problem.gradients[part]]

        def input_fn(gradients=gradients):
            return tf.data.Dataset.from_generator(
                lambda: iter(gradients),
                tf.nest.map_structure(lambda spec: spec.dtype, specs),
                tf.nest.map_structure(lambda spec: spec.shape, specs),
            )

        first = hvd.rank() == 0
        run_config = estimator.RunConfig(
            model_dir=folder if first else f"{folder} of rank {hvd.rank()}, part {number}",
            save_checkpoints_steps=trainings.STEPS if first else None,
            save_summary_steps=None,
            session_config=trainings.config(),
        )
        hooks = [hvd.BroadcastGlobalVariablesHook(0), KeepValues(found)]
        estimator.Estimator(model_fn, config=run_config).train(input_fn, hooks=hooks)
    return found


def run_the_page(hvd, folder):
    """Runs the program that docs/clusters.md shows. Rank 0 checks the last checkpoint."""
    (code,) = [each for each in python_blocks(ROOT / PAGE) if "import horovod" in each]
    os.chdir(folder)
    exec(compile(code, PAGE, "exec"), {})
    if hvd.rank() == 0:
        assert tf.train.load_variable("horovod_model", "global_step") == 1000


def main(port, folder, *names):
    """Runs all trainings of one rank."""
    stop_with_parent()
    cluster, _, rank = my_place()
    del os.environ["TF_CONFIG"]  # an Estimator would read it
    hvd = horovod_ranks.join(int(port), rank, len(cluster["worker"]))
    for name in names:
        if name == PAGE:
            run_the_page(hvd, folder)
            continue
        train = train_in_an_estimator if name.startswith(IN_ESTIMATOR) else train_in_sessions
        for way in trainings.WAYS:
            path = os.path.join(folder, f"{name}, {way}")
            found = train(hvd, name.replace(IN_ESTIMATOR, ""), way, path)
            np.savez(f"{path}, {rank}.npz", **found)
    hvd.shutdown()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    v1.disable_v2_behavior()
    main(*sys.argv[1:])
