"""Processes on loopback, checked against a Session.

    python -m tests.support.processes.clusters ROLE

The roles are "workers" (each of two, under MultiWorkerMirroredStrategy), "coordinator" (under
ParameterServerStrategy) and "server" (its workers and parameter server). The environment variable
TF_CONFIG tells a process its place; `mirrored_training` tells the options.
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

# What Keras' own optimizers say where their `fit` does not go with a strategy.
CANNOT_FIT = {
    "keras 3 workers": "Attempt to convert a value (PerReplica",
    "keras 3 coordinator": "pass this dataset to ClusterCoordinator.create_per_worker_dataset",
    "TensorFlow 2.4 coordinator": "must be called inside a `tf.function` passed to `create_per_",
}


def public(name):
    """Returns a name of tf.distribute, which up to TensorFlow 2.11 may be an experimental one."""
    return getattr(tf.distribute, name, None) or getattr(tf.distribute.experimental, name)


class ScheduledLoop(Loop):
    """A training loop whose steps are done by some worker, one after the other."""

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
    """Two processes end in the bits of a Session that gets the sum of their gradients."""
    for name in SOME:
        check_optimizer(Loop(strategy, bridged(OPTIMIZERS[name]), apply_bridged), name)


def check_fit(strategy):
    """`model.fit` does, too; where Keras' own optimizer cannot, ours gives the same error."""
    if KERAS_3:
        assert_cannot_fit(strategy, fit_arrays, "keras 3 workers")
        return
    for name in FEW if FULL else FEW[1:]:
        check_fit_with(strategy, name)


def assert_cannot_fit(strategy, fit, where):
    """Asserts that `fit` fails, with Keras' own optimizer and with ours, for the same reason."""
    own = keras().optimizers.Adam if KERAS_3 else keras().optimizers.SGD
    for make in (own, lambda: bridged(OPTIMIZERS["adam"])(None)):
        model, _ = make_model(strategy, make)
        try:
            fit(model, *examples(repeated=True))
        except ValueError as error:
            assert CANNOT_FIT[where] in str(error), error
        else:
            raise AssertionError(f"{where} can fit")


# Parameter server.


def check_steps(coordinator):
    """Steps that two workers do in turn end in the bits of a Session."""
    for name in SOME:
        loop = ScheduledLoop(coordinator, bridged(OPTIMIZERS[name]), apply_bridged)
        check_optimizer(loop, name, as_one)
        for variable in loop.optimizer.weights + list(loop.variables.values()):
            assert "/job:ps/" in variable.device, (variable.name, variable.device)


def check_together(coordinator):
    """Workers that train at the same time each count their steps."""
    loop = ScheduledLoop(coordinator, bridged(OPTIMIZERS["adam"]), apply_bridged)
    batches = [as_one(batch) for batch in data()]
    loop.train_step(batches[0])
    for batch in batches[1:]:
        loop.schedule(batch)
    coordinator.join()
    steps = components(coordinator.strategy, loop.optimizer.iterations)[0].numpy()
    # Keras 3 reads the number of steps, and then writes it: two workers may count one step.
    assert 1 < steps <= STEPS if KERAS_3 else steps == STEPS, steps
    for variable in loop.variables.values():
        assert np.isfinite(variable.numpy()).all()


def check_coordinated_fit(coordinator):
    """`model.fit`, in epochs of one step, as the workers train at the same time within an epoch.

    Where Keras' own optimizer cannot, ours gives the same error.
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
    """Does what a process of this role does."""
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
    os._exit(0)  # TensorFlow would wait for the others


if __name__ == "__main__":
    main(sys.argv[1])
