"""Compares the Keras bridge of two checkouts: this one and another one.

Each optimizer trains in a child process of its own, which imports the package of its checkout and
waits while another process is timed. All processes use the same Python and the same TensorFlow.
"""

import json
import os
import subprocess
import sys

BEFORE = ", other checkout"  # after the name of an optimizer
_GOAL = 1.05  # the largest ratio that is no slower: medians of equal code differ by as much
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def comparisons(planned):
    """Returns the planned comparisons of bridged optimizers, each with the other checkout's.

    Args:
      planned: a list of (contestant, other, goal), as `keras_bridge.comparisons` returns it.
    """
    bridged = [one for one, _, _ in planned if one[1].startswith("bridged ")]
    return [((name, each), (name, each + BEFORE), _GOAL) for name, each in dict.fromkeys(bridged)]


class InChildProcess:
    """A contestant in a child process.

    Args:
      checkout: the folder of its checkout.
      workload: the `Workload`.
      way: the `keras_bridge.Way`.
      optimizer: the optimizer's name.

    Attributes:
      step: this object, whose `times` runs and times steps.

    Raises:
      RuntimeError: the child process failed; its error message is on stderr.
    """

    def __init__(self, checkout, workload, way, optimizer):
        self.step = self
        command = [sys.executable, os.path.abspath(__file__), os.path.abspath(checkout)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True
        )
        self._ask({"workload": workload._asdict(), "way": way._asdict(), "optimizer": optimizer})

    def _ask(self, question):
        print(json.dumps(question), file=self._child.stdin, flush=True)
        answer = self._child.stdout.readline()
        if not answer:
            raise RuntimeError(f"A process of the benchmark ended: {self._child.args}")
        return json.loads(answer)

    def times(self, count):
        """Runs `count` steps. Returns a list of seconds per step."""
        return self._ask(count)

    def close(self):
        """Ends the child process."""
        self._child.stdin.close()
        self._child.stdout.close()
        self._child.wait()


def answer_questions(checkout):
    """Reads questions as JSON lines from stdin, and writes the answers to stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints
    sys.path.insert(0, checkout)
    import legacy_opt.compat

    if not os.path.abspath(legacy_opt.__file__).startswith(checkout + os.sep):
        raise RuntimeError(f"{checkout} has no package legacy_opt, and {legacy_opt} was imported.")
    sys.path.insert(0, ROOT)
    from benchmarks import keras_bridge, timing, workloads

    question = json.loads(sys.stdin.readline())
    shape = tuple(question["workload"].pop("shape"))
    workload = workloads.Workload(shape=shape, **question["workload"])
    way = keras_bridge.Way(**question["way"])
    contestant = keras_bridge.contestant(workload, way, question["optimizer"])
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(timing.times(contestant.step, int(line))), file=answers, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    answer_questions(os.path.abspath(sys.argv[1]))
