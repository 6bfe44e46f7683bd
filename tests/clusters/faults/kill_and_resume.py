"""Kills a training repeatedly and compares it with an uninterrupted training.

    python tests/clusters/faults/kill_and_resume.py --kills 500

A process trains and saves a checkpoint every 5 batches. The process is killed and started again.
Every second kill is in the middle of a save; the other kills are at random moments. Then the same
training runs once without interruption. Each restarted process reports its state (variables, slots,
global step) after restoring, at each checkpoint and at the end. Each reported state must equal that
of the uninterrupted run bit for bit, and no finished checkpoint may be missing.

All public optimizers and wrappers are trained, in four groups (groups.py). With --optimizer, a
small model is trained by one optimizer, and saved every 20 batches, most of the time in the middle
of an accumulation: AdagradDecay, LazyAdam, or AdagradDecay in a GradientAccumulationOptimizer.

Most processes are forked with the finished graph (see lives.py). One process in five is a new
Python process, which may be killed while it imports TensorFlow or builds the graph. The last line
of the output has the number of kills after which something was lost. If this number is not 0, the
exit code is 1.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

import tensorflow as tf

from tests.clusters.faults.arguments import parser_of
from tests.clusters.faults.checkpoints import kill_in_a_save, unfinished
from tests.clusters.faults.groups import GROUPS
from tests.clusters.faults.lives import SECONDS, Life, exit_on_sigterm, sender
from tests.clusters.faults.training import NAMES, Training

# Every fifth process is a new Python process. Because 5 is odd, new processes are also killed
# alternately at random moments and in the middle of a save.
NEW_PYTHON = 5
CHOICES = (*GROUPS, *NAMES)
HANDLED = "handled SIGTERM"
ENDINGS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, HANDLED: signal.SIGTERM}


def parse_arguments(argv=None):
    """Parses the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=50, help="total number of kills")
    parser.add_argument("--optimizer", choices=CHOICES, action="append", help="only this")
    parser.add_argument(
        "--signal",
        choices=ENDINGS,
        default="SIGKILL",
        help=f"the signal of a kill; {HANDLED}: the process has a handler that raises SystemExit",
    )
    parser.add_argument(
        "--forget",
        metavar="TEXT",
        help="save no variable with this text in its name, to test that this program notices it",
    )
    parser.add_argument("--live", nargs=2, metavar=("DIRECTORY", "PIPE"), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


class Run:
    """A training that is killed repeatedly.

    Args:
        name: one of `CHOICES`.
        directory: an empty directory for checkpoints.
        moments: a `random.Random`.
        forget: see `Training`.
        ending: one of `ENDINGS`.

    Attributes:
        lives: the list of messages of each process, in order. All processes except the last were
            killed, or failed.
        in_a_save: how many kills left a checkpoint unfinished.
    """

    def __init__(self, name, directory, moments, forget=None, ending="SIGKILL"):
        self.name, self.directory, self.moments, self.forget = name, directory, moments, forget
        self.ending, self.signal = ending, ENDINGS[ending]
        # The graph has no state, and building it in each process would take longer than a life.
        self.training = Training(name, directory, forget)
        self.lives, self.in_a_save = [], 0
        # Seconds until the first save in forked (False) and new (True) processes. The initial
        # values are guesses.
        self._to_first_save = {False: 0.5, True: 5.0}

    def kill_once(self, number):
        """Starts the training and kills it; `number` is the number of the kill, from 0."""
        before = unfinished(self.directory)
        new_python = number % NEW_PYTHON == NEW_PYTHON - 1
        with self._start(new_python) as life:
            if number % 2:
                # The first kill in a save waits for a finished checkpoint, because otherwise there
                # is no checkpoint that the kill could destroy.
                for _ in range(self.moments.randint(number == 1, 2)):
                    life.wait_for(SECONDS, "saved")
                killed = kill_in_a_save(life, self.directory, self.moments, self.signal)
            else:
                life.wait_for(self.moments.uniform(0, self._to_first_save[new_python] + 0.5))
                killed = life.kill(self.signal)
        self._note(life, killed)
        self.in_a_save += bool(unfinished(self.directory) - before)
        if "saved" in life.events:
            self._to_first_save[new_python] = life.messages[life.events.index("saved")]["seconds"]

    def finish(self):
        """Continues the training for two checkpoints; then trains from the start, uninterrupted.

        Returns:
            The digests of the uninterrupted run, as a dict from the number of trained batches.
        """
        reached = max([m["batch"] for life in self.lives for m in life if "batch" in m] or [0])
        every = self.training.model.every
        stop = (reached // every + 2) * every + every // 2
        with Life(lambda send: self.training.live(send, stop)) as life:
            self._note(life, life.ended())
        with tempfile.TemporaryDirectory() as directory, Life(
            lambda send: self.training.live(send, stop, directory)
        ) as whole:
            if not whole.ended():
                raise RuntimeError(f"{self.name}: the training failed, and was not killed")
        return {message["batch"]: message["digests"] for message in whole.messages}

    def _start(self, new_python):
        if not new_python:
            return Life(self._live)
        command = [sys.executable, os.path.abspath(__file__), "--optimizer", self.name]
        command += ["--forget", self.forget] if self.forget else []
        command += ["--signal", self.ending]
        return Life(None, command + ["--live", self.directory])

    def _live(self, send):
        if self.ending == HANDLED:
            exit_on_sigterm()
        self.training.live(send)

    def _note(self, life, good):
        """Records a process's messages; after a failure, empties the directory of checkpoints."""
        self.lives.append(life.messages)
        if not good:
            life.messages.append({"event": "fails"})
            shutil.rmtree(self.directory)
            os.mkdir(self.directory)


def losses(lives, expected):
    """Compares the restarted processes with the uninterrupted run.

    Args:
        lives: the messages of each process; all processes except the last were killed, or failed.
        expected: the result of `Run.finish`.

    Returns:
        A list of pairs: the number of a kill, and a description of what was lost.
    """
    found, saved = [], 0
    for kill, (before, after) in enumerate(zip(lives, lives[1:])):
        saved = max([saved] + [m["batch"] for m in before if m["event"] == "saved"])
        if any(message["event"] == "fails" for message in before):
            saved = 0
        wrong = [each for each in (_loss(m, saved, expected) for m in after) if each]
        if wrong:
            found.append((kill, wrong[0]))
    return found


def _loss(message, saved, expected):
    if message["event"] == "fails":
        return "the process that was started after the kill failed"
    batch, digests = message["batch"], message["digests"]
    if message["event"] == "begins" and batch < saved:
        return f"the checkpoint of batch {saved} is gone: training continued from batch {batch}"
    if batch not in expected:
        return f"the uninterrupted run has no checkpoint of batch {batch}"
    names = set(digests) | set(expected[batch])
    names = sorted(name for name in names if digests.get(name) != expected[batch].get(name))
    if names:
        where = f"{message['event']} at batch {batch}"
        return f"{where}: variables that differ from the uninterrupted run: {', '.join(names)}"
    return None


def try_one(name, kills, moments, **options):
    """Kills the training of one of `CHOICES` `kills` times; prints the figures.

    Returns:
        Three numbers of kills: those that lost something, in the middle of a save, and before
        training began.
    """
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        run = Run(name, directory, moments, **options)
        for number in progress(range(kills), name):
            run.kill_once(number)
        expected = run.finish()
    found = losses(run.lives, expected)
    early = sum(not messages for messages in run.lives[:-1])
    report = "%s: %d kills (%d before training began, %d left a checkpoint unfinished), "
    report %= name, kills, early, run.in_a_save
    text = "%d batches, %d variables compared, %.0f s"
    size = len(next(iter(expected.values())))
    print(report + text % (max(expected), size, time.monotonic() - begin), flush=True)
    for number, what in found:
        print(f"  kill {number}: {what}")
    return len(found), run.in_a_save, early


def progress(numbers, title):
    """Iterates over the numbers, with a progress bar if tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return numbers
    tqdm.monitor_interval = 0  # no monitor thread, because this process forks
    pace = {} if sys.stderr.isatty() else {"mininterval": 30}  # in a log, each update is a line
    return tqdm(numbers, title, unit="kill", miniters=1, leave=False, **pace)


def main(argv=None):
    """Runs the program; returns its exit code."""
    arguments = parse_arguments(argv)
    names = arguments.optimizer or list(GROUPS)
    if arguments.live:
        directory, pipe = arguments.live
        if arguments.signal == HANDLED:
            exit_on_sigterm()
        Training(names[0], directory, arguments.forget).live(sender(int(pipe)))
    print(f"moments of the kills: --seed {arguments.seed}", flush=True)
    begin, moments, totals = time.monotonic(), random.Random(arguments.seed), (0, 0, 0)
    for place, name in enumerate(names):
        kills = len(range(place, arguments.kills, len(names)))
        if kills:
            found = try_one(name, kills, moments, forget=arguments.forget, ending=arguments.signal)
            totals = tuple(map(sum, zip(totals, found)))
    lost, in_a_save, early = totals
    trained = sum(len(GROUPS.get(name, [name])) for name in names)
    text = "TensorFlow %s, %d optimizers and wrappers, %d kills by %s: %d in the middle of a save, "
    text += "%d before training began; %.0f minutes"
    minutes = (time.monotonic() - begin) / 60
    print(
        text
        % (tf.__version__, trained, arguments.kills, arguments.signal, in_a_save, early, minutes)
    )
    print(f"kills that lost bits: {lost} of {arguments.kills}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
