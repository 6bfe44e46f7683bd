"""Kills processes of a cluster at random for some minutes, and checks what the training has lost.

    python tests/clusters/faults/load.py --minutes 15

The cluster is that of examples_graph_mode/parameter_servers.py --restart, but has more workers.
Every 20 seconds, a process is killed by SIGKILL, even if it is just starting. First, the kind of
process (server, worker or chief) is chosen at random, then a process of this kind. After the last
kill, each worker must train on some more batches, and the chief must end by itself.

The exit code is 1 if, according to the logs of the workers,

* a variable, slot or step has other bits after a restore than in the checkpoint,
* a restored checkpoint is older than the last checkpoint, or
* a worker leaves out or repeats a batch without a restore.
"""

import json
import os
import pathlib
import random
import sys
import tempfile
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples_graph_mode"))

import numpy as np
import tensorflow.compat.v1 as tf

import parameter_servers
from flights import cluster_worker, processes
from flights.data import load_flights
from flights.restarts import POSITIONS, RestartableTraining
from tests.clusters.faults import load_log
from tests.clusters.faults.arguments import parser_of

BATCHES, BATCH = 2000, 64  # after BATCHES batches, a worker repeats the same batches
MORE = 100  # batches of each worker after the last kill
ENDLESS = 1 << 40


class LoggedTraining(RestartableTraining):
    """Writes a log, checks each restore, and trains on the number of batches in the file `stop`."""

    def __init__(self, graph, flights, predictions, index, shares, arguments):
        super().__init__(graph, flights, predictions, index, shares, arguments)
        self.variables = {each.op.name: each for each in tf.global_variables()}
        directory = pathlib.Path(arguments.directory)
        self.file = (directory / f"worker {index}.log").open("a", buffering=1)
        self.stop = directory / "stop"
        self.look_at_stop()

    def look_at_stop(self):
        """Sets the number of batches that each worker has to train on."""
        batches = int(self.stop.read_text()) if self.stop.exists() else ENDLESS
        self.shares = np.full(len(self.shares), batches)

    def log(self, event, **values):
        """Writes a line to the log."""
        values.update(event=event, time=time.time(), pid=os.getpid(), worker=self.index)
        self.file.write(json.dumps(values) + "\n")

    def restore(self, session, path):
        """Restores a checkpoint; compares all variables with the checkpoint, bit for bit."""
        super().restore(session, path)
        found, different = session.run(self.variables), []
        if path:
            reader = tf.train.load_checkpoint(path)
            names = reader.get_variable_to_shape_map()
            different = differences(found, {name: reader.get_tensor(name) for name in names})
        positions = found[POSITIONS].tolist()
        self.log("restored", positions=positions, number=number_of(path), different=different)

    def save_if_due(self, session, batches, finished):
        """Saves a checkpoint if necessary; logs each finished checkpoint."""
        before = self.saved
        super().save_if_due(session, batches, finished)
        if self.saved != before:
            self.log("saved", number=self.saved)

    def step(self, session, position):
        """Trains on a batch, and writes the batch's position to the log."""
        positions = super().step(session, position % BATCHES)
        self.log("trained", position=position)
        self.look_at_stop()
        return positions


def number_of(path):
    """Returns the number in the name of a checkpoint; 0 for None."""
    return int(path.rpartition("-")[2]) if path else 0


def differences(found, expected):
    """Returns the names of arrays that differ in bits, shape or dtype, or that one dict lacks."""

    def content(arrays, name):
        array = np.asarray(arrays[name])
        return array.dtype, array.shape, array.tobytes()

    names = found.keys() & expected.keys()
    wrong = {name for name in names if content(found, name) != content(expected, name)}
    return sorted(wrong | (found.keys() ^ expected.keys()))


class Killer(threading.Thread):
    """Kills a process of a cluster every `arguments.every` seconds.

    Args:
      cluster: a `Cluster`.
      arguments: the command line.
      checkpoint: the path of a file. The kills begin after this file has appeared.
      at_end: a function to call after the last kill.

    Attributes:
      kills: a list of pairs (time, name of the killed process).
    """

    def __init__(self, cluster, arguments, checkpoint, at_end):
        super().__init__(daemon=True)
        self.cluster, self.arguments, self.checkpoint = cluster, arguments, checkpoint
        self.at_end, self.kills = at_end, []

    def run(self):
        """Waits for the first checkpoint, then kills until the time is over."""
        while not os.path.exists(self.checkpoint):
            time.sleep(0.1)
        moments = random.Random(self.arguments.seed)
        names = sorted(self.cluster.processes)
        for _ in range(int(60 * self.arguments.minutes / self.arguments.every)):
            time.sleep(self.arguments.every)
            kind = moments.choice(load_log.KINDS)
            name = moments.choice([name for name in names if load_log.kind_of(name) == kind])
            self.cluster.processes[name][0].kill()
            self.kills.append((time.time(), name))
        self.at_end()


def train_and_kill(arguments, directory):
    """Runs the cluster until the chief ends.

    Returns:
      The events of the training, and the final global step and positions.
    """
    flights = load_flights().first(BATCHES * BATCH * arguments.workers)
    parameter_servers.write_flights(flights, directory)
    checkpoints, home = os.path.join(directory, "checkpoints"), pathlib.Path(directory)
    command = ["--directory", directory, "--batch-size", str(BATCH), "--restart"]
    command += ["--out", checkpoints, "--checkpoint-every", str(arguments.checkpoint_every)]
    logs = [home / f"worker {index}.log" for index in range(arguments.workers)]

    def stop():
        reached = max(each.get("position", 0) for each in load_log.read(logs))
        (home / "stop.new").write_text(str(reached + MORE))
        (home / "stop.new").rename(home / "stop")

    timeout = 60 * arguments.minutes + arguments.timeout
    with processes.Cluster(timeout, ps=arguments.servers, worker=arguments.workers) as cluster:
        cluster.start("ps", processes.SERVER)
        cluster.start("worker", os.path.abspath(__file__), "--worker", *command)
        killer = Killer(cluster, arguments, os.path.join(checkpoints, "checkpoint"), stop)
        killer.start()
        cluster.wait(load_log.CHIEF, restart=True)
    last = tf.train.latest_checkpoint(checkpoints)
    step, positions = (tf.train.load_variable(last, name) for name in ("global_step", POSITIONS))
    if (positions != int((home / "stop").read_text())).any():
        sys.exit(f"The last checkpoint has the positions {positions}.")
    return load_log.read(logs, killer.kills), int(step), positions


def parse_arguments(argv=None):
    """Parses the command line."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=15, help="duration")
    add("--every", type=float, default=20, help="seconds between kills")
    add("--servers", type=int, default=2, help="number of servers")
    add("--workers", type=int, default=6, help="number of workers, including the chief")
    add("--checkpoint-every", type=int, default=200, help="steps between checkpoints")
    add("--timeout", type=int, default=900, help="seconds for the start and the end")
    return parser.parse_args(argv)


def main(argv=None):
    """Runs the program; returns its exit code."""
    arguments = parse_arguments(argv)
    print(f"TensorFlow {tf.__version__}, --seed {arguments.seed}", flush=True)
    load, begin = [os.getloadavg()[0]], time.time()
    with tempfile.TemporaryDirectory() as directory:
        events, step, positions = train_and_kill(arguments, directory)
    load.append(os.getloadavg()[0])
    user, system = os.times()[2:4]
    print("\n".join(load_log.figures(events)))
    print(f"at the end: {positions.sum()} batches, global step {step}")
    print(
        f"{time.time() - begin:.0f} s, {user + system:.0f} CPU seconds; load average "
        f"{load[0]:.1f} before, {load[1]:.1f} after; {os.cpu_count()} processors"
    )
    found, _ = load_log.faults(events)
    print("\n".join([f"faults: {len(found)}"] + found))
    return 1 if found else 0


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    if "--worker" in sys.argv:
        sys.argv.remove("--worker")
        cluster_worker.be_worker(parameter_servers.parse_arguments(), LoggedTraining)
    processes.end_on_signals()
    sys.exit(main())
