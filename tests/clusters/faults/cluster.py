"""Kills parameter servers, workers and chiefs, and checks the training afterwards.

    python -m tests.clusters.faults.cluster FAULT

FAULT is a key of `FAULTS`. The check of each fault starts two parameter servers and a chief; the
check of "worker" also starts workers. The chief and the workers train a small model with
`tf.compat.v1.train.Server`, `replica_device_setter` and `MonitoredTrainingSession`. If the chief
trains alone, training is deterministic. Then the variables, slots and global step must equal those
of a training in a single process, bit for bit.

With --native, all processes use native kernels, and an update without a kernel is an error.
"""

import contextlib
import random
import sys
import tempfile
import time

import tensorflow as tf

import legacy_opt
from tests.clusters.faults.arguments import parser_of
from tests.clusters.faults.checkpoints import kill_in_a_save, newest, unfinished
from tests.clusters.faults.lives import SECONDS, Life
from tests.clusters.faults.training import CONFIG, EVERY, NAMES, batch_of, build, digests_of
from tests.support.processes.local_cluster import free_addresses

v1 = tf.compat.v1


class Cluster:
    """A cluster of processes on this machine; the end of the `with` block kills all processes."""

    native = False  # whether processes use native kernels

    def __init__(self, **jobs):
        self.spec = {job: free_addresses(count) for job, count in jobs.items()}
        self._stack = contextlib.ExitStack()
        self.directory = self._stack.enter_context(tempfile.TemporaryDirectory())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stack.close()

    def start(self, live):
        """Starts a process that runs `live(send)`; returns its `Life`."""
        return self._stack.enter_context(Life(live))

    def serve(self, index):
        """Starts a parameter server and waits until it is ready."""

        def live(send):
            if self.native:
                legacy_opt.native.enable(require=True)
            server = v1.train.Server(self.spec, "ps", index)
            send("ready")
            server.join()

        life = self.start(live)
        life.expect("ready")
        return life

    def serve_all(self):
        """Starts all parameter servers."""
        return [self.serve(index) for index in range(len(self.spec["ps"]))]

    def learn(self, job, learner):
        """Starts a chief or worker that trains with a `Learner`."""

        def live(send):
            # Without the device filters, a session waits for all workers, so it never starts if a
            # worker is dead.
            filters = ["/job:ps", "/job:" + job]
            config = v1.ConfigProto(device_filters=filters, **CONFIG)
            server = v1.train.Server(self.spec, job, 0, config=config)
            device = v1.train.replica_device_setter(
                cluster=tf.train.ClusterSpec(self.spec), worker_device="/job:" + job
            )
            if self.native:
                legacy_opt.native.enable(require=True, target=server.target)
            learner.learn(send, self.directory, config, server.target, device, job == "chief")

        return self.start(live)

    def global_step(self):
        """Returns the global step, which is a variable on a parameter server."""

        def live(send):
            config = v1.ConfigProto(device_filters=["/job:ps"])
            with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
                step = v1.train.get_or_create_global_step()
                with v1.Session("grpc://" + self.spec["ps"][0], config=config) as session:
                    send("is", step=int(session.run(step)))

        return self.start(live).expect("is")["step"]


class Learner:
    """The training program of a chief or a worker.

    Args:
        name: the optimizer, one of `NAMES`.
        stop: training ends when all processes together have trained this many batches.
        own: training ends when this process has trained this many batches.
        send_all: whether to send the state after each batch.
    """

    def __init__(self, name, stop=None, own=None, send_all=False):
        self.name, self.stop, self.own, self.send_all = name, stop, own, send_all

    def learn(self, send, directory, config, target="", device=None, is_chief=True):
        """Trains and sends messages.

        Each process sends "trained" after each batch. A chief also sends "at" with the digests
        (hashes) of all variables. It sends "at" when it starts, after it has restored a checkpoint,
        every `EVERY` batches, and when it ends.
        """
        with tf.Graph().as_default():
            with v1.device(device):
                model = build(self.name)
            variables = {variable.op.name: variable for variable in v1.global_variables()}
            session = v1.train.MonitoredTrainingSession(
                target,
                is_chief,
                directory,
                save_checkpoint_steps=EVERY,
                save_summaries_steps=None,
                save_summaries_secs=None,
                log_step_count_steps=None,
                config=config,
                max_wait_secs=SECONDS,
            )
            trained = []

            def step(step_context):
                # If a parameter server fails, the session repeats this whole function, which then
                # reads the new position. A plain `session.run` would be repeated with the old feed.
                values = step_context.run_with_hooks(model.position)
                batch = batch_of(values)
                ends = batch == self.stop or len(trained) == self.own
                continues = trained and trained[-1] == batch - 1 and batch % EVERY
                if is_chief and (ends or self.send_all or not continues):
                    digests = digests_of(step_context.run_with_hooks(variables))
                    send("at", batch=batch, step=int(values[0]), digests=digests)
                if ends:
                    step_context.request_stop()
                    return
                step_context.run_with_hooks(model.train_op, model.feed(batch))
                trained.append(batch)
                send("trained", batch=batch)

            with session:
                while not session.should_stop():
                    session.run_step_fn(step)


def worker_killed(name, kills, moments):
    """Kills a worker that trains at the same time as the chief."""
    with Cluster(ps=2, chief=1, worker=1) as cluster:
        cluster.serve_all()
        chief = cluster.learn("chief", Learner(name))
        chief.expect("trained")
        workers = []
        for _ in range(kills):
            workers.append(cluster.learn("worker", Learner(name)))
            workers[-1].expect("trained")
            time.sleep(moments.uniform(0, 0.3))
            assert workers[-1].kill()
            for _ in range(10):  # the chief does not wait for the dead worker
                chief.expect("trained")
        workers.append(cluster.learn("worker", Learner(name, own=20)))
        assert workers[-1].ended()
        chief.kill()
        time.sleep(1)  # the parameter servers may still have to apply updates
        reported = sum(life.events.count("trained") for life in [chief] + workers)
        step = cluster.global_step()
    assert reported <= step <= reported + kills + 1, (reported, step)
    text = "%s, worker killed %d times: %d steps, of which chief and workers reported %d"
    print(text % (name, kills, step, reported), flush=True)


def ps_killed(name, kills, moments):
    """Kills a parameter server, which loses its variables; the chief restores a checkpoint."""
    with Cluster(ps=2, chief=1) as cluster:
        servers = cluster.serve_all()
        stop = 60 + 60 * kills
        chief = cluster.learn("chief", Learner(name, stop))
        for kill in range(kills):
            while chief.expect("trained")["batch"] < 30 + 60 * kill:
                pass
            time.sleep(moments.uniform(0, 0.05))
            index = kill % 2
            assert servers[index].kill()
            servers[index] = cluster.serve(index)
        assert chief.ended()
    batches = [message["batch"] for message in chief.messages if message["event"] == "trained"]
    returns = sum(one >= other for one, other in zip(batches, batches[1:]))
    assert set(batches) == set(range(stop)) and 1 <= returns <= kills, batches
    states = check_against_one_process(name, [chief])
    text = "%s, ps killed %d times: %d batches trained again, %d states equal bit for bit"
    print(text % (name, kills, len(batches) - len(set(batches)), states))


def chief_killed(name, kills, moments):
    """Kills the chief during a save; the next chief restores the last complete checkpoint."""
    left = good = 0
    with Cluster(ps=2, chief=1) as cluster:
        cluster.serve_all()
        chiefs = [cluster.learn("chief", Learner(name))]
        for _ in range(kills):
            while newest(cluster.directory) == good:  # no newer checkpoint yet
                chiefs[-1].expect("trained")
            for _ in range(moments.randint(0, EVERY)):
                chiefs[-1].expect("trained")
            before = unfinished(cluster.directory)
            assert kill_in_a_save(chiefs[-1], cluster.directory, moments)
            good = newest(cluster.directory)
            left += bool(unfinished(cluster.directory) - before)
            reached = chiefs[-1].last("trained")["batch"]
            stop = reached + 40 if len(chiefs) == kills else None
            chiefs.append(cluster.learn("chief", Learner(name, stop)))
            assert chiefs[-1].expect("at")["step"] == good
        assert chiefs[-1].ended()
    states = check_against_one_process(name, chiefs)
    text = "%s, chief killed %d times (%d of the kills interrupted a save): %d states are equal"
    print(text % (name, kills, left, states))


def check_against_one_process(name, chiefs):
    """Compares all states that chiefs sent with the states of a training in a single process.

    Returns:
        The number of compared states.
    """
    states = [m for chief in chiefs for m in chief.messages if m["event"] == "at"]

    def live(send):
        if Cluster.native:
            legacy_opt.native.enable(require=True)
        with tempfile.TemporaryDirectory() as directory:
            learner = Learner(name, states[-1]["batch"], send_all=True)
            learner.learn(send, directory, v1.ConfigProto(**CONFIG))

    with Life(live) as whole:
        assert whole.ended()
    expected = {m["batch"]: m["digests"] for m in whole.messages if m["event"] == "at"}
    for state in states:
        right, batch = expected[state["batch"]], state["batch"]
        wrong = [each for each in right if state["digests"].get(each) != right[each]]
        assert not wrong, f"{name}: at batch {batch}, wrong variables: {wrong}"
    return len(states)


FAULTS = {"worker": worker_killed, "ps": ps_killed, "chief": chief_killed}


def names_for(fault):
    """Returns the optimizers to test with a fault.

    The fault "worker" excludes gradient accumulation, which is impossible with several workers
    (docs/wrappers.md).
    """
    return [name for name in NAMES if not (fault == "worker" and "accumulated" in name)]


def main(argv=None):
    """Runs the program."""
    parser = parser_of(__doc__)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--optimizer", choices=NAMES, help="only this optimizer, not all")
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--native", action="store_true", help="use native kernels")
    arguments = parser.parse_args(argv)
    if arguments.kills < 1:
        parser.error("--kills must be at least 1")
    Cluster.native = arguments.native
    print("seed", arguments.seed, file=sys.stderr, flush=True)
    names = [arguments.optimizer] if arguments.optimizer else names_for(arguments.fault)
    for name in names:
        FAULTS[arguments.fault](name, arguments.kills, random.Random(arguments.seed))


if __name__ == "__main__":
    main()
