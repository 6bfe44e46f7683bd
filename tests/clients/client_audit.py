"""Tests that `legacy-opt audit` finds all uses of optimizers in the sources of tf-slim and deepctr.

The expected uses were counted by hand.
"""

import os
import re

import deepctr
import pytest
import tf_slim

from legacy_opt.compat.old_programs.source_analysis.optimizer_uses import audit

# {file: {kind of use: line numbers}}. A line with two uses of the same kind is listed twice.
TF_SLIM = {
    "layers/optimizers.py": {
        "constructor": [44, 209],
        "mention": [41, 42, 43, 45, 46, 211, 216, 223],
    },
    "layers/optimizers_test.py": {
        "constructor": [76, 77, 95, 321, 346, 370, 393, 416, 440, 464],
        "mention": [75, 320, 345, 369, 392, 415, 439, 463],
        "helper": [84, 100, 115, 122, 130, 133, 143, 150, 161, 176, 184, 202, 218, 233, 234, 254]
        + [272, 290, 309, 332, 359, 378, 401, 424, 448, 473, 492, 524],
        "string": [75, 78, 109, 123, 131, 134, 148, 159, 170, 177, 188, 206, 222, 238, 258, 276]
        + [294, 313, 320, 345, 369, 392, 415, 439, 463],
    },
    # Names that NumPy has removed.
    "layers/layers_test.py": {"removed": [2707, 2793]},
    "layers/sparse_ops_test.py": {"removed": [78, 89, 101]},
    "losses/metric_learning_test.py": {"removed": [323]},
    "metrics/metric_ops_large_test.py": {"removed": [66]},
    "learning.py": {"mention": [388, 641, 659], "helper": [436]},
    "learning_test.py": {
        "constructor": [254, 290, 324, 357, 382, 409, 442, 461, 480, 506, 539, 558, 576, 596, 614]
        + [636, 659, 679, 791, 806, 821, 835, 932],
        "helper": [256, 292, 326, 359, 384, 410, 444, 463, 482, 508, 541, 560, 578, 598, 616, 638]
        + [661, 688, 794, 809, 823, 838, 839, 841, 934],
    },
    "losses/loss_ops_test.py": {"constructor": [961]},
    "training/evaluation_test.py": {"constructor": [183, 301], "helper": [184, 302]},
    "training/training.py": {"mention": [381]},
    "training/training_test.py": {
        "constructor": [109, 126, 160, 193, 216, 256, 292, 315, 341, 369, 472, 496, 520, 540],
        "helper": [110, 128, 161, 194, 217, 258, 293, 316, 343, 382, 475, 499, 522, 543, 544, 546],
    },
}
DEEPCTR = {
    "estimator/models/afm.py": {"string": [22, 23], "removed": [51, 70]},
    "estimator/models/autoint.py": {"string": [25, 26], "removed": [59, 95]},
    "estimator/models/ccpm.py": {"string": [23, 24], "removed": [57, 92]},
    "estimator/models/dcn.py": {"string": [22, 23], "removed": [55, 87]},
    "estimator/models/deepfefm.py": {"string": [25, 25], "removed": [55, 89]},
    "estimator/models/deepfm.py": {"string": [23, 24], "removed": [54, 76]},
    "estimator/models/fibinet.py": {"string": [23, 24], "removed": [53, 80]},
    "estimator/models/fnn.py": {"string": [19, 20], "removed": [48, 65]},
    "estimator/models/fwfm.py": {"string": [25, 26], "removed": [58, 84]},
    "estimator/models/nfm.py": {"string": [21, 22], "removed": [51, 73]},
    "estimator/models/pnn.py": {"string": [22, 23], "removed": [55, 93]},
    "estimator/models/wdl.py": {"string": [20, 21], "removed": [49, 66]},
    "estimator/models/xdeepfm.py": {"string": [22, 23], "removed": [56, 84]},
    "estimator/utils.py": {"import": [3], "helper": [122, 123], "removed": [92, 93, 94, 112]},
    "estimator/inputs.py": {"removed": [11, 17]},
    "layers/sequence.py": {"removed": [779, 781]},
}


@pytest.mark.parametrize("package, counted", [(tf_slim, TF_SLIM), (deepctr, DEEPCTR)])
def test_audit_finds_exactly_the_counted_uses(package, counted):
    home = os.path.dirname(package.__file__)
    uses, _ = audit([home])
    found = {}
    for use in uses:
        if use.name.startswith("tf.python."):
            continue  # see below
        file = os.path.relpath(use.path, home).replace(os.sep, "/")
        found.setdefault(file, {}).setdefault(use.kind, []).append(use.line)
    assert found == counted


def test_audit_finds_private_names_that_moved():
    home = os.path.dirname(tf_slim.__file__)
    uses, _ = audit([home])
    names = "tf.python.framework.ops.IndexedSlices", "tf.python.framework.ops.Tensor"
    found = {(use.path, use.line) for use in uses if use.name in names}
    expected = set()
    for folder, _, files in os.walk(home):
        for path in (os.path.join(folder, file) for file in files if file.endswith(".py")):
            with open(path, encoding="utf-8") as source:
                text = source.read()
            imported = re.search(r"from tensorflow.python.framework import ops( as (\w+))?\n", text)
            if imported:
                alias = imported.group(2) or "ops"
                used = re.compile(rf"(?<![\w.'\"`]){alias}\.(IndexedSlices|Tensor)\b")
                lines = enumerate(text.splitlines(), 1)
                expected |= {(path, number) for number, line in lines if used.search(line)}
    assert len(found) > 10 and found == expected
