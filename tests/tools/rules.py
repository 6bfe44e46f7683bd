"""Writes the recorded rules of the catalogue into legacy_opt/recorded/rules.

    python -m tests.tools.rules [FOLDER]

`make rules` runs this program on lane 2.15. The files have the same bytes on each TensorFlow.
"""

import inspect
import os
import sys
from pathlib import Path

import tensorflow as tf

import legacy_opt
from legacy_opt import recorded
from legacy_opt.optimizers import catalogue, stock_rules

FOLDER = Path(recorded.__file__).with_name("rules")
# The values of arguments without a default.
ARGUMENTS = {"learning_rate": 0.01, "momentum": 0.9, "weight_decay": 0.01}
# Optimizers without a rule, and the reasons.
WITHOUT_RULE = {"ShampooOptimizer": "kernels do not support the slot layout TensorSlot"}


def classes():
    """Returns the optimizers of the catalogue, and TensorFlow's own: a dict from names."""
    ours = {name: getattr(legacy_opt, name) for name in catalogue.__all__}
    stock = {cls.__name__: cls for cls in stock_rules.RULES}
    return {**ours, **stock}


def make(cls):
    """Returns an optimizer with the default arguments and the global step of the default graph."""
    step = tf.compat.v1.train.get_or_create_global_step()
    names = inspect.signature(cls.__init__).parameters.values()
    needed = [each.name for each in names if each.default is each.empty]
    needed = [name for name in needed if name not in ("self", "args", "kwargs", "global_step")]
    if any(each.name == "global_step" for each in names):  # a default would be a constant
        needed.append("global_step")
    return cls(**{name: step if name == "global_step" else ARGUMENTS[name] for name in needed})


def texts():
    """Yields the name of each optimizer with a rule, and its record as JSON."""
    for name, cls in sorted(classes().items()):
        if name in WITHOUT_RULE:
            continue
        with tf.Graph().as_default():
            record = recorded.record(make(cls))
        yield name, recorded.dumps(record)


def main(folder=FOLDER):
    """Writes the files, and removes those of other optimizers."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = dict(texts())
    for path in folder.glob("*.json"):
        if path.stem not in found:
            os.remove(str(path))
    for name, text in found.items():
        (folder / (name + ".json")).write_text(text, encoding="utf-8")
    print(f"{len(found)} rules, {sum(map(len, found.values()))} bytes in {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
