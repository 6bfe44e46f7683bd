"""The matrix of docs/keras_exactness.md: is each v1 optimizer the same through the Keras bridge?

    python -m tests.exactness OUT.json [DTYPE…]   runs every cell on this TensorFlow
    python tests/exactness.py PAGE.md JSON…       writes the page from the lanes' results

`make matrix` does both.
"""

import functools
import gc
import json
import sys
from pathlib import Path

EQUAL, UNSUPPORTED = "equal", "unsupported"
HEADER = """\
# How exact the Keras bridge is

<!-- Generated. To write it anew: make matrix -->

Each v1 optimizer is trained in a graph-mode Session and, on the same TensorFlow, through
`legacy_opt.compat.to_keras`: 24 steps, dense gradients and rows with repeated ids. Variables after
each step, all slots and the variables that all share are compared bit for bit.

The ways: **graph**, the Keras optimizer in a graph-mode Session; **function**, in a `tf.function`;
**eager**, without either, against a Session without graph rewriting; **fit**, a model with an
embedding and a dense layer, against the same model in a Session.

This page was made with {dtypes}. "all" means that all four ways are equal in all of these; fit is
run in float32 and float64 only. A dtype that the v1 optimizer itself does not train in a Session
there is named behind "without"; the bridge raises an error with it too. Any other entry is a way
that differs, with its largest difference; where the v1 optimizer itself, without the bridge,
computes the same in a `tf.function`, TensorFlow is the reason, and the entry says so. In a way
that is "unsupported", v1 and the bridge both raise an error.

`make matrix` writes this page.
"""


@functools.lru_cache(maxsize=None)
def reference(run, task, name, dtype):
    """Returns the trace of the v1 optimizer itself, or the error that it raises."""
    from tests.keras_cases import CASES

    return _attempt(run, task(dtype, CASES[name].only), CASES[name].make)


def _attempt(run, task, make):
    import tensorflow as tf

    try:
        return run(task, make)
    except (tf.errors.OpError, NotImplementedError, TypeError, ValueError) as error:
        return error.with_traceback(None)


def cell(name, way, dtype):
    """Runs one cell.

    Returns:
      EQUAL; UNSUPPORTED if the v1 optimizer raises an error and the bridge does too; else a
      sentence that tells the difference.
    """
    from tests import running
    from tests.keras_cases import CASES
    from tests.keras_ways import WAYS

    OWN = {"function": running.function, "eager": running.eager}
    task, run, reference_run, _ = WAYS[way]
    expected = reference(reference_run, task, name, dtype)
    actual = _attempt(run, task(dtype, CASES[name].only), CASES[name].make)
    failed = [isinstance(trace, Exception) for trace in (expected, actual)]
    if any(failed):
        # Only Sessions of TensorFlow 1.15 place what has no kernel on their XLA device.
        own = way in OWN and reference(OWN[way], task, name, dtype)
        if failed[1] and (failed[0] or isinstance(own, Exception)):
            return UNSUPPORTED
        return "only the %s fails: %s" % (("bridge", actual) if failed[1] else ("v1", expected))
    gap = largest_difference(actual, expected)
    if gap is None:
        return EQUAL
    entry = "differs by %.1e" % gap
    if way == "function":
        own = reference(running.function, task, name, dtype)
        slots = {key: slot for key, slot in actual.slots.items() if key[0] != "shared"}
        if largest_difference(actual._replace(slots=slots), own) is None:
            entry += " as v1 does"
    return entry


def largest_difference(actual, expected):
    """Returns the largest difference of two traces, None if they are equal bit for bit."""
    import numpy as np

    from tests import running

    try:
        running.assert_same(actual, expected)
        return None
    except AssertionError:
        gaps = [0.0]
        for one, other in zip(actual.steps + [actual.slots], expected.steps + [expected.slots]):
            for key in set(one) & set(other):
                pair = (np.asarray(item, np.float64) for item in (one[key], other[key]))
                gaps.append(np.max(np.abs(np.subtract(*pair))))
        return max(gaps)


def run_lane(path, dtypes=()):
    """Runs every cell, and writes the results by case, dtype and way."""
    import tensorflow as tf

    from tests.keras_cases import CASES, CONTRIB
    from tests.keras_ways import DTYPES, WAYS

    gc.disable()  # TensorFlow 1.15 crashes or hangs where it collects the iterators that fit made
    results = {}
    for name in CASES:
        results[name] = {
            dtype: {way: cell(name, way, dtype) for way in WAYS if dtype in WAYS[way].dtypes}
            for dtype in dtypes or DTYPES
        }
        reference.cache_clear()
        print("%-32s %s" % (name, summary(results[name])), flush=True)
    content = {"version": tf.__version__, "contrib": sorted(CONTRIB), "cells": results}
    Path(path).write_text(json.dumps(content, indent=1), encoding="utf-8")


def summary(cells):
    """Returns the page's entry for one optimizer on one version."""
    without, differing = [], []
    for dtype, ways in cells.items():
        if set(ways.values()) == {UNSUPPORTED}:
            without.append(dtype)
            continue
        for way, result in ways.items():
            if result != EQUAL:
                differing.append("%s %s: %s" % (way, dtype, result.split(":")[0]))
    entry = "; ".join(differing) or "all"
    return entry + (" without " + ", ".join(without) if without else "")


def page(lanes):
    """Returns the page made of the lanes' results, in order."""
    names = list(dict.fromkeys(name for lane in lanes for name in lane["cells"]))
    contrib = {name for lane in lanes for name in lane["contrib"]}
    rows = [["optimizer"] + [lane["version"] for lane in lanes], ["---"] * (len(lanes) + 1)]
    for name in names:
        label = "contrib.opt " + name if name in contrib else name
        entries = [summary(lane["cells"][name]) if name in lane["cells"] else "–" for lane in lanes]
        rows.append([label] + entries)
    dtypes = dict.fromkeys(
        dtype for lane in lanes for cells in lane["cells"].values() for dtype in cells
    )
    return (
        HEADER.format(dtypes=", ".join(dtypes))
        + "\n"
        + "\n".join("| %s |" % " | ".join(row) for row in rows)
        + "\n"
    )


def rows_of(text):
    """Returns the optimizers that a page lists."""
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    return rows[2:]


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first.endswith(".md"):
        results = [json.loads(Path(path).read_text(encoding="utf-8")) for path in others]
        Path(first).write_text(page(results), encoding="utf-8")
    else:
        run_lane(first, others)
