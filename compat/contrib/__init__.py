"""Small parts of `tf.contrib` on every TensorFlow: `from legacy_opt.compat import contrib`.

A name has the place that it had in `tf.contrib`: `tf.contrib.training.HParams` is
`contrib.training.HParams`. `legacy-opt docs old_scripts` lists the names. Names, arguments,
defaults and results are those of `tf.contrib` in TensorFlow 1.15. Optimizers are in `legacy_opt`.
"""

from . import (
    crf,
    distribute,
    framework,
    layers,
    learn,
    legacy_seq2seq,
    metrics,
    rnn,
    seq2seq,
    training,
)

__all__ = [
    "crf",
    "distribute",
    "framework",
    "layers",
    "learn",
    "legacy_seq2seq",
    "metrics",
    "rnn",
    "seq2seq",
    "training",
]
