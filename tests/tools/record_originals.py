"""Records trajectories of the original implementations of our optimizers on TensorFlow 1.15.

From the checkout's root::

    .nox/1.15/bin/python -m tests.tools.record_originals tests/data

writes `recorded_contrib.npz` to the folder tests/data, with a trajectory for each case of
`tests.support.cases` that has an original in `tf.contrib.opt`. A trajectory contains the values of
all variables after 1, 8 and 24 training steps. The command also writes `recorded_others.npz`, with
trajectories of the optimizers of bert-tensorflow 1.0.1, albert-tensorflow 1.1 and tensor2tensor
1.15.7, if these packages can be imported (install them with ``pip install --no-deps --target=DIR``
and set ``PYTHONPATH=DIR``).
"""

import functools
import os
import sys
import types

import numpy as np
import tensorflow as tf

from tests.support import problems, recorded
from tests.support.cases import CASES
from tests.support.fed_training import FedTraining


def record(name, make, only=()):
    """Trains the variables `only` (empty: all) with an optimizer; returns a `recorded.Recorded`."""
    problem = problems.everything("float32", only=only, steps=recorded.STEPS)
    training = FedTraining(make, problem)
    values = training.train(0, recorded.STEPS)
    for each in values:
        del each["global_step"]  # the optimizers of BERT and ALBERT do not increment it
    snapshots = tuple(values[number - 1] for number in recorded.SNAPSHOTS_AFTER)
    assert all(np.all(np.isfinite(value)) for value in snapshots[-1].values()), name
    arguments = recorded.argument_text(CASES[name].arguments)
    return recorded.Recorded(name, arguments, tuple(problem.values), snapshots)


def of_contrib():
    """Records every case with an original in `tf.contrib.opt`."""
    for name, case in CASES.items():
        if case.original is not None:
            cls = case.original.optimizer()
            make = functools.partial(case.construct, cls)
            yield record(name, make, only=case.original.variables)


def of_others():
    """Records the optimizers of BERT, ALBERT and tensor2tensor."""
    # tensor2tensor's common_layers imports packages that are not installed. Therefore a module with
    # the only function that Adafactor uses replaces common_layers.
    layers = types.ModuleType("tensor2tensor.layers.common_layers")
    layers.cast_like = lambda x, y: tf.cast(x, y.dtype.base_dtype)
    sys.modules[layers.__name__] = layers
    from albert import lamb_optimizer
    from bert import optimization
    from tensor2tensor.utils import adafactor

    originals = {
        "AdamWeightDecay": optimization.AdamWeightDecayOptimizer,
        "LAMB bias_correction=False": lamb_optimizer.LAMBOptimizer,
        "Adafactor": adafactor.AdafactorOptimizer,
        "Adafactor learning_rate, beta1": adafactor.AdafactorOptimizer,
        "Adafactor factored=False": adafactor.AdafactorOptimizer,
    }
    for name, original in originals.items():
        arguments = dict(CASES[name].arguments)
        arguments.pop("bias_correction", None)  # ALBERT's optimizer has no such argument

        def make(step, original=original, arguments=arguments):
            if callable(arguments.get("decay_rate")):
                # The case's function, as the tensor that tensor2tensor's optimizer takes.
                arguments = dict(arguments, decay_rate=adafactor.adafactor_decay_rate_adam(0.95))
            return original(**arguments)

        yield record(name, make)


def main(folder):
    recorded.save(os.path.join(folder, "recorded_contrib.npz"), list(of_contrib()))
    try:
        others = list(of_others())
    except ModuleNotFoundError as error:
        print(f"recorded_others.npz was not written: {error}")
    else:
        recorded.save(os.path.join(folder, "recorded_others.npz"), others)


if __name__ == "__main__":
    main(sys.argv[1])
