"""Starts and stops the processes of a cluster on this machine.

Run as a program, this file is a server: a parameter server, or a worker of a
`ParameterServerStrategy`. With --native, the server can run native kernels.
"""

import collections
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ENDING = (signal.SIGINT, signal.SIGTERM)
SERVER = os.path.abspath(__file__)  # the program of a server
STARTED = "FLIGHTS_STARTED_BY_CLUSTER"  # environment variable of processes started by `Cluster`


class Cluster:
    """The processes of a cluster. The end of the `with` block stops all processes.

    The processes have loopback addresses. Their stdout is printed; their stderr is stored for an
    error message.

    Args:
      seconds: the time limit of `wait`.
      **jobs: the number of tasks of each job, for example worker=2.
    """

    def __init__(self, seconds, **jobs):
        self.seconds = seconds
        self.tasks = [(job, index) for job, count in jobs.items() for index in range(count)]
        addresses = iter(free_addresses(len(self.tasks)))  # in one call, so that all are different
        self.addresses = {job: [next(addresses) for _ in range(jobs[job])] for job in jobs}
        self.commands = {}  # "worker 0" -> (the content of TF_CONFIG, the command)
        self.processes = {}  # "worker 0" -> (process, file of its stderr)
        self.restarts = collections.Counter()  # "worker 0" -> how often it was restarted

    def __enter__(self):
        return self

    def start(self, job, program, *arguments):
        """Starts a Python program for every task of a job, with the task in TF_CONFIG.

        A job that is not part of the cluster, such as an Estimator's evaluator, has one task.
        """
        for index in range(len(self.addresses.get(job, [None]))):
            place = {"cluster": self.addresses, "task": {"type": job, "index": index}}
            self.commands[f"{job} {index}"] = place, [sys.executable, program, *arguments]
            self._start(f"{job} {index}")

    def _start(self, name):
        place, command = self.commands[name]
        with signals_held():
            errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in __exit__
            process = subprocess.Popen(
                command,
                env=dict(os.environ, TF_CONFIG=json.dumps(place), **{STARTED: "1"}),
                stdin=subprocess.PIPE,
                stderr=errors,
            )
            self.processes[name] = process, errors

    def wait(self, *names, restart=False):
        """Waits for processes.

        Args:
          *names: jobs ("worker": all of its processes) and single processes ("worker 0").
          restart: whether to start a process again, at its address, if it is killed by a signal.

        Raises:
          SystemExit: if any process of the cluster fails, or if the time limit is reached.
        """
        stop = time.time() + self.seconds
        waiting = [name for name in self.processes if name in names or name.split()[0] in names]
        while True:
            for name, (process, errors) in list(self.processes.items()):
                if restart and (process.poll() or 0) < 0:
                    self._restart(name)
                elif process.poll():  # it failed; other processes may wait for it forever
                    sys.exit(describe_failure(name, process, errors))
            if all(self.processes[name][0].poll() == 0 for name in waiting):
                return
            if time.time() > stop:
                sys.exit(f"The processes have not ended after {self.seconds} s, and are stopped.")
            time.sleep(0.1)

    def _restart(self, name):
        process, errors = self.processes[name]
        self._start(name)
        self.restarts[name] += 1
        pid = self.processes[name][0].pid
        print(f"{describe_failure(name, process, errors)} Restarted as process {pid}.", flush=True)
        process.stdin.close()
        errors.close()

    def __exit__(self, *error):
        for process, _ in self.processes.values():
            process.kill()
        for process, errors in self.processes.values():
            process.wait()
            process.stdin.close()
            errors.close()


def describe_failure(name, process, errors):
    """Returns a sentence about a process that has failed; `errors` is the file of its stderr."""
    if process.returncode < 0:  # killed, so stderr has no error message
        return f"{name} was killed by {signal.Signals(-process.returncode).name}."
    return f"{name} failed. {last_line(errors)}"


def last_line(file):
    """Returns the last line that looks like an exception; if there is none, the last line.

    The exception may be above the last line, because TensorFlow 1.15 prints below the exception
    where the operation was created.
    """
    file.seek(0)
    lines = file.read().strip().splitlines()
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b.*:", line)]
    return (errors or lines or [""])[-1]


def free_addresses(count):
    """Returns unused addresses of this machine.

    By default, Linux gives outgoing connections ports from 32768 on. The ports here are lower, so
    that no outgoing connection can take the port of a process that is being restarted.
    """
    ports = random.SystemRandom()
    with contextlib.ExitStack() as stack:
        found = []
        while len(found) < count:
            each = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # the port is in use
                each.bind(("127.0.0.1", ports.randrange(10000, 32768)))
                found.append(f"127.0.0.1:{each.getsockname()[1]}")
        return found


def my_place():
    """Returns the cluster, job and index of this process, from TF_CONFIG."""
    place = json.loads(os.environ["TF_CONFIG"])
    return place["cluster"], place["task"]["type"], place["task"]["index"]


def end_on_signals():
    """Makes Ctrl-C and SIGTERM raise SystemExit, so that `with` blocks stop the processes.

    Does nothing in a process that a `Cluster` has started.
    """
    if STARTED in os.environ:
        return

    def end(number, frame):
        sys.exit(f"{signal.Signals(number).name}: all processes are stopped.")

    for number in ENDING:
        signal.signal(number, end)


@contextlib.contextmanager
def signals_held():
    """Delays Ctrl-C and SIGTERM until the end of the `with` block."""
    received = []
    handlers = {
        each: signal.signal(each, lambda number, _: received.append(number)) for each in ENDING
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in received:
            os.kill(os.getpid(), number)


def stop_with_parent():
    """Ends this process when its parent ends, if a `Cluster` has started this process."""
    if STARTED not in os.environ:
        return

    def wait():
        sys.stdin.read()  # returns when the other end of the pipe is closed
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    import tensorflow

    stop_with_parent()
    if "--native" in sys.argv:
        import legacy_opt

        legacy_opt.native.enable()  # before the server is created
    tensorflow.distribute.Server(*my_place(), protocol="grpc").join()
