"""Compares optimizers and the Keras bridge (`to_keras`) of this checkout with another checkout.

Each optimizer trains in a separate child process, which imports legacy_opt from the optimizer's
checkout. Only one process trains at a time. All processes use the same Python and the same
TensorFlow.
"""

import contextlib
import json
import os
import subprocess
import sys

BEFORE = ", other checkout"  # suffix of the names of the other checkout's optimizers
_GOAL = 1.05  # even the median times of equal code differ by up to 5 %
# The optimizers that are compared on each of the workloads W1 to W4, without and with native
# kernels: fused kernels, rules, decays, and sums.
OPTIMIZERS = {
    "W1": ("AdagradDecay", "AdamW", "AdamWeightDecay", "LAMB", "LazyAdam", "stock Adam"),
    "W2": ("AdagradDecay", "AdamW", "AdamWeightDecay", "LAMB", "LazyAdam", "stock Adam"),
    "W3": ("AdagradDecay", "DiffGrad", "LazyAdam", "MomentumW"),
    "W4": ("AdagradDecay", "LazyAdam"),
}
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def comparisons(planned):
    """Returns comparisons of each bridged optimizer with the same optimizer of the other checkout.

    Args:
      planned: a list of comparisons from `keras_bridge.comparisons`.
    """
    bridged = [one for one, _, _ in planned if one[1].startswith("bridged ")]
    return _with_the_other(dict.fromkeys(bridged))


def comparisons_of_kernels(workload, has_kernels):
    """Returns comparisons of optimizers with the same optimizers of the other checkout.

    Args:
      workload: the name of the workload, a key of `OPTIMIZERS`.
      has_kernels: whether both checkouts have native kernels.
    """
    suffixes = ("", ", native") if has_kernels else ("",)
    return _with_the_other(
        (workload, name + suffix) for name in OPTIMIZERS[workload] for suffix in suffixes
    )


def _with_the_other(keys):
    return [((name, each), (name, each + BEFORE), _GOAL) for name, each in keys]


def build_kernels(checkout):
    """Compiles the operations that run the native kernels of a checkout, if it has any.

    Returns:
      Whether the checkout has native kernels.
    """
    with contextlib.suppress(OSError):
        command = [sys.executable, "-m", "legacy_opt", "build-kernels"]
        done = subprocess.run(command, cwd=checkout, stdout=subprocess.DEVNULL, check=False)
        return done.returncode == 0
    return False


class InChildProcess:
    """An optimizer that trains a workload in a child process.

    Args:
      checkout: the folder of the checkout from which the process imports legacy_opt.
      workload: the `Workload`.
      way: the `keras_bridge.Way`; None for a training in a Session, without Keras.
      optimizer: the optimizer's name, a key of `keras_bridge.makers` or of `optimizers.MAKERS`.

    Attributes:
      step: this object, because `timing.times(step, count)` calls `step.times(count)`.

    Raises:
      RuntimeError: the child process ended without an answer. Its error, if any, is on stderr.
    """

    def __init__(self, checkout, workload, way, optimizer):
        self.step = self
        command = [sys.executable, os.path.abspath(__file__), os.path.abspath(checkout)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True
        )
        way = way and way._asdict()
        self._ask({"workload": workload._asdict(), "way": way, "optimizer": optimizer})

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
    """Reads the questions of `InChildProcess` from stdin, and writes answers to stdout, as JSON.

    The first question contains the workload, the `keras_bridge.Way` and the optimizer's name; its
    answer is "ready". Each further question is a number of steps to run; its answer is a list with
    the seconds of each step.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # redirects all other output on stdout to stderr
    sys.path.insert(0, checkout)
    import legacy_opt.compat

    if not os.path.abspath(legacy_opt.__file__).startswith(checkout + os.sep):
        raise RuntimeError(f"{checkout} has no legacy_opt; {legacy_opt} was imported instead.")
    sys.path.insert(0, ROOT)
    from benchmarks import keras_bridge, optimizers, timing, workloads

    question = json.loads(sys.stdin.readline())
    shape = tuple(question["workload"].pop("shape"))
    workload = workloads.Workload(shape=shape, **question["workload"])
    if question["way"] is None:
        make = optimizers.MAKERS[question["optimizer"]]
        contestant = workloads.Contestant(workload, make, use_resource=True)
    else:
        way = keras_bridge.Way(**question["way"])
        contestant = keras_bridge.contestant(workload, way, question["optimizer"])
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(timing.times(contestant.step, int(line))), file=answers, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    answer_questions(os.path.abspath(sys.argv[1]))
