"""Upgrades TensorFlow in place under a folder of kernels, and trains before and afterwards.

    python -m tests.clusters.faults.upgrade_in_place /tmp/env/bin/python tensorflow-cpu==2.15.1

The arguments are the Python of a virtual environment made for this purpose (with another version of
TensorFlow, and this package on its path), and what pip installs there. The trainings need kernels:
they end with an error if one is missing. The program prints a line for each training, with the
digest of the result. If a result differs, or the process after the upgrade loads kernels although
there is no operations library for the new TensorFlow, the exit code is 1.

A process that has imported TensorFlow before the upgrade trains after it, too.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRAINING = """
import hashlib, os, sys
import tensorflow as tf
import legacy_opt
v1 = tf.compat.v1

def train():
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("table", [50, 8], initializer=v1.ones_initializer())
        loss = tf.reduce_sum(tf.square(tf.gather(table, [1, 7, 1])))
        legacy_opt.native.enable(require=True)
        train_op = legacy_opt.LazyAdamOptimizer(0.1).minimize(loss)
        session.run(v1.global_variables_initializer())
        for _ in range(10):
            session.run(train_op)
        return hashlib.sha256(session.run(table).tobytes()).hexdigest()[:16]

for wait in sys.argv[1:]:
    if wait == "waits":
        print("ready", flush=True)
        sys.stdin.readline()
    try:
        print(tf.__version__, "trained:", train(), flush=True)
    except Exception as error:
        print(tf.__version__, f"{type(error).__name__}: {error}", flush=True)
"""


class Environment:
    """The Python of an environment, with a new folder of kernels."""

    def __init__(self, python, folder):
        self.python = python
        self.variables = dict(os.environ, LEGACY_OPT_KERNELS=folder, PYTHONPATH=str(ROOT))
        self.variables["TF_CPP_MIN_LOG_LEVEL"] = "3"

    def run(self, *command):
        """Runs Python; returns the last line of its output."""
        done = subprocess.run(
            [self.python, *command],
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        return (done.stdout.strip().splitlines() or [f"exit code {done.returncode}"])[-1]

    def start(self, *waits):
        """Starts a training that waits for a line, and returns when it waits."""
        process = subprocess.Popen(
            [self.python, "-c", TRAINING, *waits],
            env=self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
        )
        while process.stdout.readline().strip() != "ready":
            pass
        return process


def main(argv=None):
    """Runs the program; returns its exit code."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("python")
    parser.add_argument("requirement")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        environment = Environment(arguments.python, folder)
        environment.run("-m", "legacy_opt", "build-kernels")
        found = {"before": environment.run("-c", TRAINING, "now")}
        idle = environment.start("waits")
        busy = environment.start("now", "waits")  # has trained before the upgrade
        pip = ["-m", "pip", "install", "--quiet", "--no-cache-dir", arguments.requirement]
        environment.run(*pip)
        found["after, by a process that has only imported the old one"] = last_line(idle)
        found["after, by a process that has trained with the old one"] = last_line(busy)
        refused = environment.run("-c", TRAINING, "now")
        found["after build-kernels"] = ""
        environment.run("-m", "legacy_opt", "build-kernels")
        found["after build-kernels"] = environment.run("-c", TRAINING, "now")
        kept = sorted(path.name for path in pathlib.Path(folder).glob("operations-*"))
    for when, line in found.items():
        print(f"{when}: {line}")
    print(f"after, without build-kernels: {refused}")
    print("operations libraries:", *kept)
    digests = {line.partition("trained: ")[2] for line in found.values()}
    return int(len(digests) != 1 or digests == {""} or "trained" in refused)


def last_line(process):
    """Lets a waiting training go on; returns the last line of its output."""
    output, _ = process.communicate("go on\n")
    return (output.strip().splitlines() or [f"exit code {process.returncode}"])[-1]


if __name__ == "__main__":
    sys.exit(main())
