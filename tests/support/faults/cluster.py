"""Parameter servers and workers that are killed.

    python -m tests.support.faults.cluster FAULT

The faults are the functions below. Each starts two parameter servers, a chief and perhaps a worker,
which train a small model the TF1 way: `tf.compat.v1.train.Server`, `replica_device_setter`,
`MonitoredTrainingSession`. Where the chief trains alone, each step is determined by the one before,
and variables, slots and step have to be those of one process without a cluster, bit for bit.
"""

import argparse
import contextlib
import random
import sys
import tempfile
import time

import tensorflow as tf

from tests.support.paths import EXAMPLES

sys.path.insert(0, str(EXAMPLES))

from flights.processes import free_addresses
from tests.support.faults.checkpoints import kill_in_a_save, newest, unfinished
from tests.support.faults.lives import SECONDS, Life
from tests.support.faults.training import CONFIG, EVERY, NAMES, batch_of, build, digests_of

v1 = tf.compat.v1


class Cluster:
    """Addresses on loopback, and the processes that run there; they are gone when `with` ends."""

    def __init__(self, **jobs):
        self.spec = {job: free_addresses(count) for job, count in jobs.items()}
        self._stack = contextlib.ExitStack()
        self.directory = self._stack.enter_context(tempfile.TemporaryDirectory())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stack.close()

    def start(self, live):
        """Starts a process; killed or ended ones are replaced by starting another one."""
        return self._stack.enter_context(Life(live))

    def serve(self, index):
        """Starts a parameter server, and waits until it is there."""

        def live(send):
            server = v1.train.Server(self.spec, "ps", index)
            send("ready")
            server.join()

        life = self.start(live)
        life.need("ready")
        return life

    def serve_all(self):
        """Starts all parameter servers."""
        return [self.serve(index) for index in range(len(self.spec["ps"]))]

    def learn(self, job, learner):
        """Starts a process that trains."""

        def live(send):
            # Without the filter a session would wait for workers, too, and not start if one is dead
            filters = ["/job:ps", "/job:" + job]
            config = v1.ConfigProto(device_filters=filters, **CONFIG)
            server = v1.train.Server(self.spec, job, 0, config=config)
            device = v1.train.replica_device_setter(
                cluster=tf.train.ClusterSpec(self.spec), worker_device="/job:" + job
            )
            learner.learn(send, self.directory, config, server.target, device, job == "chief")

        return self.start(live)

    def global_step(self):
        """Asks the parameter servers."""

        def live(send):
            config = v1.ConfigProto(device_filters=["/job:ps"])
            with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
                step = v1.train.get_or_create_global_step()
                with v1.Session("grpc://" + self.spec["ps"][0], config=config) as session:
                    send("is", step=int(session.run(step)))

        return self.start(live).need("is")["step"]


class Learner:
    """What a chief or a worker does.

    Args:
        name: the optimizer, one of `NAMES`.
        stop: to train until so many batches have been learned.
        own: to train so many batches.
        tell_all: to tell all states.
    """

    def __init__(self, name, stop=None, own=None, tell_all=False):
        self.name, self.stop, self.own, self.tell_all = name, stop, own, tell_all

    def learn(self, send, directory, config, target="", device=None, is_chief=True):
        """Trains.

        Sends "trained" after each batch; and a chief "at" with the digests of all variables: where
        it begins, goes back to a checkpoint or ends, and every 20 batches.
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
                # Position and batch are of one step function: where a parameter server is lost
                # between them, all of it runs again. A `run` by itself would only get its old feed.
                values = step_context.run_with_hooks(model.position)
                batch = batch_of(values)
                ends = batch == self.stop or len(trained) == self.own
                goes_on = trained and trained[-1] == batch - 1 and batch % EVERY
                if is_chief and (ends or self.tell_all or not goes_on):
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
    """Of a chief and a worker, which train at the same time, the worker is killed."""
    with Cluster(ps=2, chief=1, worker=1) as cluster:
        cluster.serve_all()
        chief = cluster.learn("chief", Learner(name))
        chief.need("trained")
        workers = []
        for _ in range(kills):
            workers.append(cluster.learn("worker", Learner(name)))
            workers[-1].need("trained")
            time.sleep(moments.uniform(0, 0.3))
            assert workers[-1].kill()
            for _ in range(10):  # the chief does not wait for the dead one
                chief.need("trained")
        workers.append(cluster.learn("worker", Learner(name, own=20)))
        assert workers[-1].ended()
        chief.kill()
        time.sleep(1)  # for what the parameter servers have still got
        known = sum(life.events.count("trained") for life in [chief] + workers)
        step = cluster.global_step()
    assert known <= step <= known + kills + 1, (known, step)
    text = "%s, worker killed %d times: %d steps, of which the workers know %d"
    print(text % (name, kills, step, known), flush=True)


def ps_killed(name, kills, moments):
    """A parameter server loses what it has; all go back to the last checkpoint."""
    with Cluster(ps=2, chief=1) as cluster:
        servers = cluster.serve_all()
        stop = 60 + 60 * kills
        chief = cluster.learn("chief", Learner(name, stop))
        for kill in range(kills):
            while chief.need("trained")["batch"] < 30 + 60 * kill:
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
    """The chief is killed while a checkpoint is written, and goes on from the one before."""
    left = good = 0
    with Cluster(ps=2, chief=1) as cluster:
        cluster.serve_all()
        chiefs = [cluster.learn("chief", Learner(name))]
        for _ in range(kills):
            while newest(cluster.directory) == good:  # so that there is something to lose
                chiefs[-1].need("trained")
            for _ in range(moments.randint(0, EVERY)):
                chiefs[-1].need("trained")
            before = unfinished(cluster.directory)
            assert kill_in_a_save(chiefs[-1], cluster.directory, moments)
            good = newest(cluster.directory)
            left += bool(unfinished(cluster.directory) - before)
            reached = chiefs[-1].last("trained")["batch"]
            stop = reached + 40 if len(chiefs) == kills else None
            chiefs.append(cluster.learn("chief", Learner(name, stop)))
            assert chiefs[-1].need("at")["step"] == good
        assert chiefs[-1].ended()
    states = check_against_one_process(name, chiefs)
    text = "%s, chief killed %d times, %d left a checkpoint unfinished: %d states equal bit for bit"
    print(text % (name, kills, left, states))


def check_against_one_process(name, chiefs):
    """Checks all states that chiefs have told of; returns how many these are."""
    states = [m for chief in chiefs for m in chief.messages if m["event"] == "at"]

    def live(send):
        with tempfile.TemporaryDirectory() as directory:
            learner = Learner(name, states[-1]["batch"], tell_all=True)
            learner.learn(send, directory, v1.ConfigProto(**CONFIG))

    with Life(live) as whole:
        assert whole.ended()
    expected = {m["batch"]: m["digests"] for m in whole.messages if m["event"] == "at"}
    for state in states:
        right, batch = expected[state["batch"]], state["batch"]
        wrong = [each for each in right if state["digests"].get(each) != right[each]]
        assert not wrong, f"{name}: other bits at batch {batch} in {wrong}"
    return len(states)


FAULTS = {"worker": worker_killed, "ps": ps_killed, "chief": chief_killed}


def names_for(fault):
    """Returns the optimizers to try; workers cannot share sums of gradients: docs/wrappers.md."""
    return [name for name in NAMES if not (fault == "worker" and "accumulated" in name)]


def main(argv=None):
    """Runs the program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--optimizer", choices=NAMES, help="else all that the fault is for")
    parser.add_argument("--kills", type=int, default=1)
    arguments = parser.parse_args(argv)
    names = [arguments.optimizer] if arguments.optimizer else names_for(arguments.fault)
    for name in names:
        FAULTS[arguments.fault](name, arguments.kills, random.Random())


if __name__ == "__main__":
    main()
