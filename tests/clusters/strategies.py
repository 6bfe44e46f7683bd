"""Trains with multi-process strategies on one host; compares the results with those of a Session.

    python -m tests.clusters.strategies ROLE [--keras3] [--full]

The roles are "workers" (both workers of MultiWorkerMirroredStrategy), "coordinator" (the
coordinator of ParameterServerStrategy) and "server" (the workers and the parameter server of
ParameterServerStrategy). The environment variable TF_CONFIG describes the cluster and the process's
task. `tests.support.keras.mirrored_training` explains the options and the term *bridged*.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf

from tests.support.keras.mirrored_fit import (
    BATCH,
    check_fit_with,
    examples,
    fit_arrays,
    keras,
    make_model,
)
from tests.support.keras.mirrored_training import (
    FEW,
    FULL,
    KERAS_3,
    OPTIMIZERS,
    SOME,
    STEPS,
    Loop,
    apply_bridged,
    as_one,
    bridged,
    check_optimizer,
    components,
    data,
    run_checks,
)

# Parts of the error messages with which `fit` refuses a strategy. Each key names a version of Keras
# or TensorFlow, and the role whose strategy is refused.
CANNOT_FIT = {
    "keras 3 workers": "Attempt to convert a value (PerReplica",
    "keras 3 coordinator": "pass this dataset to ClusterCoordinator.create_per_worker_dataset",
    "TensorFlow 2.4 coordinator": "must be called inside a `tf.function` passed to `create_per_",
}


def public(name):
    """Returns an attribute of tf.distribute, or else of tf.distribute.experimental."""
    return getattr(tf.distribute, name, None) or getattr(tf.distribute.experimental, name)


class ScheduledLoop(Loop):
    """A training loop in which a ClusterCoordinator schedules each step on one of the workers."""

    def __init__(self, coordinator, *arguments):
        super().__init__(coordinator.strategy, *arguments)
        self.coordinator, self.function = coordinator, self.train_step
        self.train_step = self.train_on_a_worker

    def schedule(self, batch):
        tensors = {name: tf.constant(value) for name, value in batch.items()}
        self.coordinator.schedule(self.function, args=(tensors,))

    def train_on_a_worker(self, batch):
        self.schedule(batch)
        self.coordinator.join()


# Workers.


def check_bridge(strategy):
    """Checks that two workers get the same bits as a Session with the sum of their gradients."""
    for name in SOME:
        check_optimizer(Loop(strategy, bridged(OPTIMIZERS[name]), apply_bridged), name)


def check_fit(strategy):
    """Checks `fit`: on Keras 2 it trains like a Session, on Keras 3 it raises an error."""
    if KERAS_3:
        assert_cannot_fit(strategy, fit_arrays, "keras 3 workers")
        return
    for name in FEW if FULL else FEW[1:]:
        check_fit_with(strategy, name)


def assert_cannot_fit(strategy, fit, where):
    """Asserts that `fit` raises the same error with Keras' own and with a bridged optimizer."""
    own = keras().optimizers.Adam if KERAS_3 else keras().optimizers.SGD
    for make in (own, lambda: bridged(OPTIMIZERS["adam"])(None)):
        model, _ = make_model(strategy, make)
        try:
            fit(model, *examples(repeated=True))
        except ValueError as error:
            assert CANNOT_FIT[where] in str(error), error
        else:
            raise AssertionError(f"fit raised no error: {where}")


# Parameter server.


def check_steps(coordinator):
    """Runs steps on two workers in turn; checks that the results equal those of a Session."""
    for name in SOME:
        loop = ScheduledLoop(coordinator, bridged(OPTIMIZERS[name]), apply_bridged)
        check_optimizer(loop, name, as_one)
        for variable in loop.optimizer.weights + list(loop.variables.values()):
            assert "/job:ps/" in variable.device, (variable.name, variable.device)


def check_together(coordinator):
    """Checks a training in which both workers train at the same time.

    All variables must be finite. `iterations` must equal the number of steps, but may be smaller on
    Keras 3.
    """
    loop = ScheduledLoop(coordinator, bridged(OPTIMIZERS["adam"]), apply_bridged)
    batches = [as_one(batch) for batch in data()]
    loop.train_step(batches[0])
    for batch in batches[1:]:
        loop.schedule(batch)
    coordinator.join()
    steps = components(coordinator.strategy, loop.optimizer.iterations)[0].numpy()
    # Keras 3 reads and then writes `iterations`, so two concurrent steps may be counted as one.
    assert 1 < steps <= STEPS if KERAS_3 else steps == STEPS, steps
    for variable in loop.variables.values():
        assert np.isfinite(variable.numpy()).all()


def check_coordinated_fit(coordinator):
    """Checks that `model.fit` trains like a Session.

    If this version of Keras does not support `fit` with ParameterServerStrategy, checks instead
    that `fit` raises the error in `CANNOT_FIT`. Each epoch has only one step, because the workers
    run the steps of an epoch at the same time.
    """
    strategy, create = coordinator.strategy, keras().utils
    create = getattr(getattr(create, "experimental", None), "DatasetCreator", None)

    def fit(model, x, ids, y):
        def batches(context=None):
            examples = tf.data.Dataset.from_tensor_slices(((x, ids), y))
            return examples.batch(BATCH).repeat()

        batches = create(batches) if create else batches()
        model.fit(batches, steps_per_epoch=1, epochs=STEPS, verbose=0)

    if create is None:
        where = "keras 3 coordinator" if KERAS_3 else "TensorFlow 2.4 coordinator"
        assert_cannot_fit(strategy, fit, where)
        return
    for name in FEW if FULL else FEW[1:]:
        check_fit_with(strategy, name, fit, repeated=True)


def coordinator_of(cluster):
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = public("ParameterServerStrategy")(resolver)
    return public("coordinator").ClusterCoordinator(strategy)


def main(role):
    """Runs this process in the given role."""
    place = json.loads(os.environ["TF_CONFIG"])
    if role == "server":
        tf.distribute.Server(
            place["cluster"], place["task"]["type"], place["task"]["index"], protocol="grpc"
        ).join()
    elif role == "workers":
        strategy = public("MultiWorkerMirroredStrategy")()
        run_checks([check_bridge, check_fit], strategy)
    else:
        coordinator = coordinator_of(place["cluster"])
        run_checks([check_steps, check_together, check_coordinated_fit], coordinator)
    sys.stdout.flush()
    os._exit(0)  # a normal exit would wait for the other processes


if __name__ == "__main__":
    main(sys.argv[1])
