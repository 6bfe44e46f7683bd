"""Lists the names in users' files: a later version that changes one cannot load these files.

    python -m tests.tools.frozen_names          writes tests/data/frozen_names.json

tests/project/test_frozen_names.py compares the list with the code, on every TensorFlow. After a
release, names may be added to the list; none may change.
"""

import inspect
import json
import warnings

import tensorflow as tf

import legacy_opt
from legacy_opt.compat.cli import native_diagnosis
from legacy_opt.optimizers import catalogue
from legacy_opt.recorded import records, state_files
from legacy_opt.versions.keras import KERAS_PACKAGE
from tests.support.paths import ROOT

v1 = tf.compat.v1
PAGE = ROOT / "tests" / "data" / "frozen_names.json"
WRAPPERS = {
    "ClipByGlobalNormOptimizer": lambda inner: legacy_opt.ClipByGlobalNormOptimizer(inner, 1.0),
    "GradientAccumulationOptimizer": lambda inner: legacy_opt.GradientAccumulationOptimizer(
        inner, 2
    ),
    "LookaheadOptimizer": legacy_opt.LookaheadOptimizer,
    "MovingAverageOptimizer": legacy_opt.MovingAverageOptimizer,
    "MultiOptimizer": lambda inner: legacy_opt.MultiOptimizer([(inner, ".*")]),
    "SWAOptimizer": legacy_opt.SWAOptimizer,
}


def names():
    """Returns the frozen names, as JSON has them."""
    found = {"keras": KERAS_PACKAGE + ">BridgedOptimizer"}
    found["record"] = [records.FORMAT, records.VERSION]
    prefixes = (state_files.VARIABLE, state_files.SLOT, state_files.SHARED)
    found["state"] = [*prefixes, state_files.GLOBAL_STEP, state_files.RECORD]
    for name in catalogue.__all__:
        cls = getattr(catalogue, name)
        if inspect.isclass(cls) and issubclass(cls, v1.train.Optimizer):
            found[name] = of_class(cls, native_diagnosis.made)
    for name, wrap in WRAPPERS.items():
        made = lambda cls, wrap=wrap: wrap(v1.train.AdagradOptimizer(0.1))  # noqa: E731
        found[name] = of_class(getattr(legacy_opt, name), made)
    return found


def text(found):
    """Returns the content of tests/data/frozen_names.json."""
    return json.dumps(found, indent=1) + "\n"


def of_class(cls, make):
    """Returns what files contain of an optimizer: its module, arguments, name and variables."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", [2, 3], use_resource=True)
        before = v1.global_variables()
        optimizer = make(cls)
        optimizer.apply_gradients([(tf.zeros([2, 3]), w)], global_step=step)
        made = [each for each in v1.global_variables() if not any(each is old for old in before)]
    return {
        "module": cls.__module__,
        "arguments": list(inspect.signature(cls).parameters),
        "name": optimizer.get_name(),
        "variables": {
            each.op.name: [each.dtype.base_dtype.name, each.shape.as_list()]
            for each in sorted(made, key=lambda variable: variable.op.name)
        },
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the optimizers get a loss that is always 0
    PAGE.write_text(text(names()), encoding="utf-8")
