"""Kills a training again and again with SIGKILL, and looks for bits that were lost.

    python tests/faults/kill_and_resume.py --kills 50

A process trains the flights model and saves a checkpoint every 20 batches. It is killed at a random
moment, every other time while a checkpoint is written, and started again, until all kills are done.
Then the same training runs once without being killed. Each process that followed a kill tells what
it began with, what it had at each checkpoint, and at the end: variables, slots and step have to be
those of the uninterrupted run, bit for bit, and no finished checkpoint may be missing. So with
AdagradDecay, with LazyAdam, and with AdagradDecay inside a GradientAccumulationOptimizer, which is
killed in the middle of accumulations.

Most processes are forked (see lives.py), one of ten is a new Python. The last line tells after how
many kills something was lost; the exit code is 1 if any.
"""

import argparse
import os
import pathlib
import random
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.faults.checkpoints import unfinished, wait_for_a_write
from tests.faults.lives import Life, sender
from tests.faults.training import EVERY, NAMES, Training

from flights_data import load_flights  # isort: skip - training.py makes the examples known

NEW_PYTHON = 10  # every so manieth process


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50, help="how many, of all optimizers (50)")
    parser.add_argument("--seed", type=int, help="of the moments; else they are new each time")
    parser.add_argument(
        "--forget",
        metavar="TEXT",
        help="leave variables with this text in their names out of checkpoints, to see it found",
    )
    parser.add_argument("--live", nargs=3, metavar=("NAME", "DIRECTORY", "PIPE"), help="internal")
    return parser.parse_args(argv)


class Run:
    """The killed training of one optimizer.

    Attributes:
        lives: all its processes, one after the other; all but the last one were killed.
        in_a_save: how many kills left a checkpoint unfinished.
    """

    def __init__(self, flights, name, directory, moments, forget):
        self.flights, self.name, self.directory = flights, name, directory
        self.moments, self.forget = moments, forget
        self.lives, self.in_a_save = [], 0
        self._to_first_save = 2.0  # seconds

    def kill_once(self, number):
        """Starts the training and kills it; `number` counts kills."""
        before = unfinished(self.directory)
        new_python = number % NEW_PYTHON == NEW_PYTHON - 1
        with self._start(new_python) as life:
            if new_python or number % 2:
                life.need("begins")
                for _ in range(self.moments.randint(0, 2)):
                    life.need("saved")
                wait_for_a_write(self.directory, self.moments)
            else:
                life.hear(self.moments.uniform(0, 2 * self._to_first_save))
            if not life.kill():
                raise RuntimeError("%s: the training failed" % self.name)
        self.in_a_save += bool(unfinished(self.directory) - before)
        if "saved" in life.events and not new_python:
            self._to_first_save = next(m["seconds"] for m in life.messages if m["event"] == "saved")

    def _start(self, new_python):
        command = [sys.executable, os.path.abspath(__file__), "--live", self.name, self.directory]
        forget = ["--forget", self.forget] if self.forget else []
        command = [command[0], command[1]] + forget + command[2:]
        life = Life(lambda send: self._training().live(send), command if new_python else None)
        self.lives.append(life)
        return life

    def _training(self, directory=None):
        return Training(self.flights, self.name, directory or self.directory, self.forget)

    def finish(self):
        """Trains on over two more checkpoints, then without kills from the start to there.

        Returns:
            The digests of the uninterrupted run by batch.
        """
        reached = max([m["batch"] for life in self.lives for m in life.messages] or [0])
        stop = (reached // EVERY + 2) * EVERY + EVERY // 2
        with Life(lambda send: self._training().live(send, stop)) as life:
            self.lives.append(life)
            life.ended()
        with tempfile.TemporaryDirectory() as directory, Life(
            lambda send: self._training(directory).live(send, stop)
        ) as whole:
            whole.ended()
        return {message["batch"]: message["digests"] for message in whole.messages}


def losses(lives, expected):
    """Finds what was lost by kills.

    Args:
        lives: the messages of each process; all but the last one were killed.
        expected: the digests of the uninterrupted run by batch.

    Returns:
        A list of pairs: the number of a kill, and what was lost by it.
    """
    found, saved = [], 0
    for number, messages in enumerate(lives):
        for message in messages if number else ():
            wrong = _difference(message, expected)
            if not wrong and message["event"] == "begins" and message["batch"] < saved:
                wrong = "the checkpoint of batch %d is gone" % saved
            if wrong:
                found.append((number - 1, wrong))
                break
        saved = max([saved] + [m["batch"] for m in messages if m["event"] == "saved"])
    return found


def _difference(message, expected):
    batch, digests = message["batch"], message["digests"]
    if batch not in expected:
        return "batch %d is none at which a checkpoint was made" % batch
    names = [
        name
        for name in sorted(set(digests) | set(expected[batch]))
        if digests.get(name) != expected[batch].get(name)
    ]
    if names:
        return "%s at batch %d: other bits in %s" % (message["event"], batch, ", ".join(names))
    return None


def try_one(flights, name, kills, arguments, moments):
    """Kills the training of one optimizer `kills` times; returns the number of losses."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        run = Run(flights, name, directory, moments, arguments.forget)
        for number in range(kills):
            run.kill_once(number)
        expected = run.finish()
        found = losses([life.messages for life in run.lives], expected)
    report = "%s: %d kills (%d before training began, %d left a checkpoint unfinished), "
    early = sum("begins" not in life.events for life in run.lives[:-1])
    print(report % (name, kills, early, run.in_a_save), end="")
    size = len(run.lives[-1].messages[-1]["digests"])
    text = "%d batches, %d variables compared, %.0f s"
    print(text % (run.lives[-1].messages[-1]["batch"], size, time.monotonic() - begin))
    for number, what in found:
        print("  kill %d: %s" % (number, what))
    return len(found)


def main(argv=None):
    """Runs the program; returns its exit code."""
    arguments = parse_arguments(argv)
    flights = load_flights()
    if arguments.live:
        name, directory, pipe = arguments.live
        Training(flights, name, directory, arguments.forget).live(sender(int(pipe)))
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print("the moments are those of --seed %d" % seed)
    moments, lost = random.Random(seed), 0
    for place, name in enumerate(NAMES):
        kills = len(range(place, arguments.kills, len(NAMES)))
        if kills:
            lost += try_one(flights, name, kills, arguments, moments)
    print("bits lost %d of %d" % (lost, arguments.kills))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
