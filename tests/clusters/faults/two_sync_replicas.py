"""Trains with two SyncReplicasOptimizers in one graph and two workers, and counts stuck runs.

    python -m tests.clusters.faults.two_sync_replicas              # TensorFlow's optimizers as are
    python -m tests.clusters.faults.two_sync_replicas --own-queues # a queue of tokens for each
    python -m tests.clusters.faults.two_sync_replicas --common     # one of them for both models

The optimizers are TensorFlow's own, and nothing of this package takes part. Each
SyncReplicasOptimizer creates its queue of tokens with the shared name "sync_token_q", so that the
workers of a cluster find the same queue. Two SyncReplicasOptimizers therefore get one queue. With
--own-queues this program gives their queues different names, and changes nothing else.

A run is stuck if no worker finishes a step for --seconds. The last line has the figures.
"""

import random
import sys
import threading
import time

import tensorflow as tf

from tests.clusters.faults.arguments import parser_of
from tests.clusters.faults.lives import Life
from tests.support.processes.local_cluster import LocalCluster

v1 = tf.compat.v1
WORKERS = 2


def give_own_queues():
    """Makes the n-th queue with a shared name in each graph different from the others."""
    fifo = tf.queue.FIFOQueue
    original = fifo.__init__

    def changed(self, *args, **kwargs):
        if kwargs.get("shared_name"):
            # Workers build equal graphs, so they find the same queues.
            kwargs["shared_name"] += f"_{len(v1.get_default_graph().get_operations())}"
        original(self, *args, **kwargs)

    fifo.__init__ = changed


def busy(gradient):
    """Returns a gradient after a random time, as on a machine that is busy with other work."""

    def wait(value):
        time.sleep(random.choice([0, 0.01]))
        return value

    late = v1.py_func(wait, [gradient], gradient.dtype)
    late.set_shape(gradient.shape)
    return late


def build(common):
    """Builds two models; returns their train_op and the SyncReplicasOptimizers.

    With `common`, one SyncReplicasOptimizer trains both models.
    """
    step = v1.train.get_or_create_global_step()
    variables = [v1.get_variable(f"w{number}", initializer=[1.0, 2.0]) for number in range(2)]
    losses = [tf.reduce_sum(tf.square(each)) for each in variables]
    parts = [(tf.add_n(losses), variables)] if common else zip(losses, [[v] for v in variables])
    train_ops, optimizers = [], []
    for loss, trained in parts:
        inner = v1.train.GradientDescentOptimizer(0.001)
        optimizers.append(v1.train.SyncReplicasOptimizer(inner, WORKERS, WORKERS))
        pairs = optimizers[-1].compute_gradients(loss, trained)
        pairs = [(busy(gradient), variable) for gradient, variable in pairs]
        train_ops.append(optimizers[-1].apply_gradients(pairs, global_step=step))
    return tf.group(*train_ops), optimizers


def work(cluster, number, common, steps, send):
    """Trains in one worker, and sends a message after each step."""
    with tf.Graph().as_default():
        with cluster.placing(number):
            train_op, optimizers = build(common)
        hooks = [each.make_session_run_hook(number == 0, num_tokens=0) for each in optimizers]
        with v1.train.MonitoredTrainingSession(
            cluster.servers["worker", number].target,
            is_chief=number == 0,
            hooks=hooks,
            log_step_count_steps=None,
            stop_grace_period_secs=1,
        ) as session:
            for step in range(steps):
                session.run(train_op)
                send("trained", worker=number, steps=step + 1)


def train(send, common, steps):
    """Trains in two workers, which are threads of this process."""
    cluster = LocalCluster(ps=1, worker=WORKERS)
    threads = [
        threading.Thread(target=work, args=(cluster, number, common, steps, send), daemon=True)
        for number in range(WORKERS)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def steps_of_a_run(arguments):
    """Runs once; returns the numbers of steps that the workers have finished."""
    with Life(lambda send: train(send, arguments.common, arguments.steps)) as life:
        done = [0] * WORKERS
        while min(done) < arguments.steps:
            if life.wait_for(arguments.seconds, "trained") is None:
                break
            for message in life.messages:
                done[message["worker"]] = message["steps"]
        return done


def main(argv=None):
    """Runs the program."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200, help="steps of each worker in a run")
    parser.add_argument("--seconds", type=float, default=60, help="a longer silence means stuck")
    parser.add_argument("--own-queues", action="store_true", help="a queue of tokens for each")
    parser.add_argument("--common", action="store_true", help="one optimizer for both models")
    arguments = parser.parse_args(argv)
    if arguments.own_queues:
        give_own_queues()
    stuck = 0
    for _ in range(arguments.runs):
        begin = time.monotonic()
        done = steps_of_a_run(arguments)
        stuck += min(done) < arguments.steps
        print(f"steps of the workers: {done}, {time.monotonic() - begin:.0f} s", flush=True)
    print(f"TensorFlow {tf.__version__}: {stuck} of {arguments.runs} runs were stuck")


if __name__ == "__main__":
    sys.exit(main())
