"""Compares the Keras bridge with v1 optimizers, and writes the table of docs/keras.md.

    python -m tests.support.exactness OUT.json [DTYPE…]   runs every cell on this TensorFlow version
    python -m tests.support.exactness PAGE.md JSON…       writes the page's table from all results

A cell is a case (optimizer and arguments) that is trained in one way with one dtype. `make matrix`
runs the first command on every lane (an environment with one TensorFlow version), then the second.
"""

import functools
import gc
import json
import os
import re
import sys
from pathlib import Path

from tests.support.pages import part_of, with_part

EQUAL, UNSUPPORTED = "equal", "unsupported"
PART = "exactness"  # the part of the page that this program writes


# Allowed differences in `fit`, where Keras builds the graph that computes the gradients. Each entry
# is (start of the case's name, dtypes, largest difference).
KNOWN_IN_FIT = (
    # The smallest singular values of rank-deficient matrices are only rounding errors.
    ("Shampoo", ("float32",), 1e-4),
    ("Shampoo", ("float64",), 1e-12),
    # In 16 bits, a tf.function and a Session compute the sparse update of TensorFlow's Adam
    # differently.
    ("AdamW", ("float16", "bfloat16"), 1e-2),
    # On TensorFlow 1.15, norms are rounded differently in `fit` and in a Session.
    ("LAMB bias_correction=False", ("float64",), 1e-15),
    ("LARS nesterov, skip_list", ("float64",), 1e-15),
)


def is_known(name, way, dtype, result):
    """Returns whether `KNOWN_IN_FIT` allows the difference in a cell's result."""
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
    """Trains the v1 optimizer without the bridge; returns the trace, or the error that occurs."""
    from tests.support.keras.keras_cases import CASES

    return _attempt(run, task(dtype, CASES[name].only, steps), CASES[name].make)


def _attempt(run, task, make):
    import tensorflow as tf

    try:
        return run(task, make)
    except (tf.errors.OpError, NotImplementedError, TypeError, ValueError) as error:
        return error.with_traceback(None)
    except Exception as error:
        if "autograph" not in type(error).__module__:  # AutoGraph raises an error of its own class
            raise
        return error.with_traceback(None)


def cell(name, way, dtype, api="optimizer_v2", steps=24):
    """Trains one case through the bridge, and compares the results with the v1 optimizer.

    Returns:
      EQUAL if all bits are equal; UNSUPPORTED if both the v1 optimizer and the bridge raise an
      error; otherwise a text that describes the difference.
    """
    from tests.support.keras.keras_cases import CASES
    from tests.support.keras.keras_ways import WAYS_OF

    task, run, reference_run, own_run, _ = WAYS_OF[api][way]
    expected = reference(reference_run, task, name, dtype, steps)
    own = own_run and functools.partial(reference, own_run, task, name, dtype, steps)
    actual = _attempt(run, task(dtype, CASES[name].only, steps), CASES[name].make)
    # On TensorFlow 1.15, some operations run only in a Session (on its XLA device), and others only
    # eagerly (Sigmoid of bfloat16). So there is a second comparison: `own` trains the v1 optimizer
    # in the same way as the bridge, in a function or eagerly.
    if isinstance(actual, Exception):
        fails = isinstance(expected, Exception) or (own and isinstance(own(), Exception))
        return UNSUPPORTED if fails else f"only the bridge fails: {actual}"
    if isinstance(expected, Exception):
        is_equal = own and _equals_own(actual, own())
        return EQUAL if is_equal else f"only the v1 optimizer fails: {expected}"
    gap = largest_difference(actual, expected)
    if gap is None:
        return EQUAL
    entry = f"differs by {gap:.1e}"
    return entry + " as v1 does" if own and _equals_own(actual, own()) else entry


def _equals_own(actual, own):
    """Returns whether a trace of the bridge equals the trace `own`.

    Slots that `own` lacks are ignored. If `own` is an error, the result is False.
    """
    if isinstance(own, Exception):
        return False
    slots = {key: actual.slots[key] for key in own.slots}
    return largest_difference(actual._replace(slots=slots), own) is None


def largest_difference(actual, expected):
    """Returns the largest difference between two traces, or None if they are equal bit for bit.

    If the traces differ in a NaN, an infinity, a dtype or a name, the result is infinity.
    """
    import numpy as np

    from tests.support import running

    try:
        running.assert_same(actual, expected)
        return None
    except AssertionError:
        gaps = []
        for one, other in zip(actual.steps + [actual.slots], expected.steps + [expected.slots]):
            for key in set(one) & set(other):
                pair = (np.asarray(item, np.float64) for item in (one[key], other[key]))
                gaps.append(np.max(np.abs(np.subtract(*pair))))
        largest = np.max(gaps)
        return largest if 0 < largest < np.inf else np.inf


def run_lane(path, dtypes=()):
    """Runs every cell; writes the results to a JSON file, by column, case, dtype and way."""
    import tensorflow as tf

    from legacy_opt import versions

    gc.disable()  # TensorFlow 1.15 crashes or hangs if it deletes iterators made by `fit`
    columns = {tf.__version__: run_api("optimizer_v2", dtypes)}
    facts = versions.keras_facts()
    if facts["generation"] == 3:
        header = f"{tf.__version__} Keras {facts['version']}"
        columns[header] = run_api("keras3", dtypes)
    Path(path).write_text(json.dumps({"columns": columns}, indent=1), encoding="utf-8")


def run_api(api, dtypes=()):
    """Runs every cell of one Keras API; returns nested dicts by case, dtype and way."""
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
    separator = "; " if differing else " "
    return entry + (separator + "without " + ", ".join(without) if without else "")


def page(text, lanes):
    """Returns the page's text with a new table, whose columns are in the order of the lanes."""
    columns = {header: cells for lane in lanes for header, cells in lane["columns"].items()}
    names = list(dict.fromkeys(name for cells in columns.values() for name in cells))
    rows = [["optimizer"] + list(columns), ["---"] * (len(columns) + 1)]
    for name in names:
        entries = [summary(cells[name]) if name in cells else "–" for cells in columns.values()]
        rows.append([name] + entries)
    dtypes = dict.fromkeys(
        dtype for cells in columns.values() for dtypes in cells.values() for dtype in dtypes
    )
    versions = f"Written with the dtypes {', '.join(dtypes)}.\n\n"
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return with_part(text, PART, versions + table)


def table_of(text):
    """Returns the lines of the page's table."""
    return [line for line in part_of(text, PART).splitlines() if line.startswith("| ")]


def rows_of(text):
    """Returns the names of the optimizers in the page's table."""
    return [line.split("|")[1].strip() for line in table_of(text)[2:]]


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first.endswith(".md"):
        results = [json.loads(Path(path).read_text(encoding="utf-8")) for path in others]
        text = Path(first).read_text(encoding="utf-8")
        Path(first).write_text(page(text, results), encoding="utf-8")
    else:
        run_lane(first, others)
        sys.stdout.flush()
        os._exit(0)  # TensorFlow 1.15 may crash if the interpreter deletes the iterators at exit
