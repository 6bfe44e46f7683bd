"""The matrix of docs/keras_exactness.md: does the Keras bridge compute the same as v1 optimizers?

    python -m tests.support.exactness OUT.json [DTYPE…]   runs every cell on this TensorFlow version
    python tests/support/exactness.py PAGE.md JSON…       writes the page from the lanes' results

`make matrix` does both. A cell is a case (optimizer and arguments), trained in one way with one
dtype.
"""

import functools
import gc
import json
import os
import re
import sys
from pathlib import Path

EQUAL, UNSUPPORTED = "equal", "unsupported"
HEADER = """\
# How exact the Keras bridge is

<!-- Generated. To write it anew: make matrix -->

This page shows whether the optimizers made by `legacy_opt.compat.to_keras` equal the v1 optimizers
bit for bit. Each v1 optimizer is trained in a graph-mode Session and, on the same TensorFlow,
through `to_keras`: 24 steps, with dense gradients and with rows with repeated ids. The variables
after each step, all slot variables and the variables that exist once per optimizer are compared.

**On one processor.** The same TensorFlow computes different last bits on different processors: its
kernels use the processor's approximate square root (1.15 and 2.4) or reciprocal square root (all),
and its widest instructions for matrix products. In 24 steps of `tf.contrib.opt`'s own optimizers,
TensorFlow 1.15.5 on two processors differed in 7 of 18 cases, by up to 1.3e-7 of the largest
element. So "equal" here, and "bit for bit" on every page, compare two ways to train on one
TensorFlow and one processor. Moving a training to another machine moves its state bit for bit; its
further steps are those that TensorFlow computes on that processor.

The ways: **graph**, the Keras optimizer in a graph-mode Session; **function**, in a `tf.function`;
**eager**, in eager execution, compared with a Session without graph rewriting; **fit**, a model
with an embedding and a dense layer, compared with the same model in a Session. If the v1 optimizer
fails in a Session only, it runs in a function, or eagerly, instead. The Keras 3 columns have these
ways with variables of TensorFlow, **function** and **eager** also with `keras.Variable`, and
**fit** also with `run_eagerly=True`. The other columns are OptimizerV2.

This page was made with {dtypes}. "all" means that all ways are equal in all of these dtypes;
OptimizerV2 runs **fit** in float32 and float64 only. "without" lists dtypes in which both the v1
optimizer in a Session and the bridge raise an error. Any other entry names a way that differs, with
its largest difference, or one that is "unsupported", in which both v1 and the bridge raise an
error. "as v1 does" means that the v1 optimizer without the bridge computes the same in a
`tf.function`, so the difference is TensorFlow's.

Shampoo is exact in **fit** only if its matrices have full rank: otherwise some singular values are
nothing but rounding errors, which the matrix power amplifies.

[Optimizers that contain optimizers](wrappers.md) are compared in the same ways, by tests only.

`make matrix` writes this page.
"""


# Allowed differences in `fit`, where Keras builds the graph that computes the gradients:
# (start of the case's name, dtypes, largest difference).
KNOWN_IN_FIT = (
    # The smallest singular values of rank-deficient matrices are nothing but rounding errors.
    ("Shampoo", ("float32",), 1e-4),
    ("Shampoo", ("float64",), 1e-12),
    # In 16 bits, tf.function computes the sparse update of TensorFlow's Adam differently.
    ("AdamW", ("float16", "bfloat16"), 1e-2),
    # Norms round differently on TensorFlow 1.15.
    ("LAMB bias_correction=False", ("float64",), 1e-15),
    ("LARS nesterov, skip_list", ("float64",), 1e-15),
)


def is_known(name, way, dtype, result):
    """Whether `KNOWN_IN_FIT` allows the difference in a cell's result."""
    found = re.match(r"differs by (\S+)", result)
    return found is not None and any(
        way.startswith("fit")
        and name.startswith(start)
        and dtype in dtypes
        and float(found.group(1)) <= bound
        for start, dtypes, bound in KNOWN_IN_FIT
    )


@functools.lru_cache(maxsize=None)
def reference(run, task, name, dtype, steps):
    """Returns the trace of the v1 optimizer without the bridge, or the error that it raises."""
    from tests.support.keras.keras_cases import CASES

    return _attempt(run, task(dtype, CASES[name].only, steps), CASES[name].make)


def _attempt(run, task, make):
    import tensorflow as tf

    try:
        return run(task, make)
    except (tf.errors.OpError, NotImplementedError, TypeError, ValueError) as error:
        return error.with_traceback(None)


def cell(name, way, dtype, api="optimizer_v2", steps=24):
    """Trains one case through the bridge and compares it with the v1 optimizer.

    Returns:
      EQUAL; UNSUPPORTED if both the v1 optimizer and the bridge raise an error; else a sentence
      that describes the difference.
    """
    from tests.support.keras.keras_cases import CASES
    from tests.support.keras.keras_ways import WAYS_OF

    task, run, reference_run, own_run, _ = WAYS_OF[api][way]
    expected = reference(reference_run, task, name, dtype, steps)
    own = own_run and functools.partial(reference, own_run, task, name, dtype, steps)
    actual = _attempt(run, task(dtype, CASES[name].only, steps), CASES[name].make)
    # On TensorFlow 1.15, some operations run only in Sessions (on their XLA device), and others
    # only eagerly (Sigmoid of bfloat16). So compare also with the v1 optimizer in a function, or
    # eagerly.
    if isinstance(actual, Exception):
        fails = isinstance(expected, Exception) or (own and isinstance(own(), Exception))
        return UNSUPPORTED if fails else f"only the bridge fails: {actual}"
    if isinstance(expected, Exception):
        is_equal = own and _equals_own(actual, own())
        return EQUAL if is_equal else f"only the v1 fails: {expected}"
    gap = largest_difference(actual, expected)
    if gap is None:
        return EQUAL
    entry = f"differs by {gap:.1e}"
    return entry + " as v1 does" if own and _equals_own(actual, own()) else entry


def _equals_own(actual, own):
    """Whether a trace equals that of the v1 optimizer run in the same way; False for errors."""
    if isinstance(own, Exception):
        return False
    slots = {key: actual.slots[key] for key in own.slots}
    return largest_difference(actual._replace(slots=slots), own) is None


def largest_difference(actual, expected):
    """Returns the largest difference between two traces, or None if they are equal bit for bit."""
    import numpy as np

    from tests.support import running

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
    """Runs every cell and writes the results to a JSON file: column -> case -> dtype -> way."""
    import tensorflow as tf

    from legacy_opt import versions

    gc.disable()  # TensorFlow 1.15 crashes or hangs if iterators made by fit are collected
    columns = {tf.__version__: run_api("optimizer_v2", dtypes)}
    facts = versions.keras_facts()
    if facts["generation"] == 3:
        header = f"{tf.__version__} Keras {facts['version']}"
        columns[header] = run_api("keras3", dtypes)
    Path(path).write_text(json.dumps({"columns": columns}, indent=1), encoding="utf-8")


def run_api(api, dtypes=()):
    """Runs every cell of one Keras API; returns the results as case -> dtype -> way."""
    from tests.support.keras.keras_cases import CASES
    from tests.support.keras.keras_ways import DTYPES, WAYS_OF

    results = {}
    for name in CASES:
        results[name] = {
            dtype: {
                key: cell(name, key, dtype, api)
                for key, way in WAYS_OF[api].items()
                if dtype in way.dtypes
            }
            for dtype in dtypes or DTYPES
        }
        reference.cache_clear()
        print(f"{api:<12} {name:<32} {summary(results[name])}", flush=True)
    return results


def summary(cells):
    """Returns the page's entry for one optimizer in one column."""
    without, differing = [], []
    for dtype, ways in cells.items():
        if set(ways.values()) == {UNSUPPORTED}:
            without.append(dtype)
            continue
        for way, result in ways.items():
            if result != EQUAL:
                differing.append(f"{way} {dtype}: {result.split(':')[0]}")
    entry = "; ".join(differing) or "all"
    return entry + (" without " + ", ".join(without) if without else "")


def page(lanes):
    """Returns the page, with the columns in the order of the lanes."""
    columns = {header: cells for lane in lanes for header, cells in lane["columns"].items()}
    names = list(dict.fromkeys(name for cells in columns.values() for name in cells))
    rows = [["optimizer"] + list(columns), ["---"] * (len(columns) + 1)]
    for name in names:
        entries = [summary(cells[name]) if name in cells else "–" for cells in columns.values()]
        rows.append([name] + entries)
    dtypes = dict.fromkeys(
        dtype for cells in columns.values() for dtypes in cells.values() for dtype in dtypes
    )
    return (
        HEADER.format(dtypes=", ".join(dtypes))
        + "\n"
        + "\n".join(f"| {' | '.join(row)} |" for row in rows)
        + "\n"
    )


def rows_of(text):
    """Returns the names of the optimizers in the page's table."""
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
    return rows[2:]


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first.endswith(".md"):
        results = [json.loads(Path(path).read_text(encoding="utf-8")) for path in others]
        Path(first).write_text(page(results), encoding="utf-8")
    else:
        run_lane(first, others)
        sys.stdout.flush()
        os._exit(0)  # TensorFlow 1.15 may crash if the interpreter deletes the iterators at exit
