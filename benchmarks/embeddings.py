"""Measures `Model.fit` of a model with a large Embedding, with several optimizers.

    python benchmarks/embeddings.py
    python benchmarks/embeddings.py --rows 10000,1000000 --plot embeddings.png

The model is an Embedding with 32 columns and two Dense layers. Its batches have 4,096 ids with a
Zipf distribution. By definition, a step of Adam changes all rows of the embedding table. LazyAdam
and AdagradDecay change only the rows whose ids are in the batch.

For each optimizer, the benchmark prints the milliseconds of a step, the ratio of this time to that
of Adam in the newest Keras, the memory of the slots, and the largest difference between the tables
that the optimizer and v1's Adam have trained. Each training runs in a separate process. XLA is not
used. Native kernels need `legacy-opt build-kernels`.
"""

import argparse
import json
import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if not __package__:  # run as a script: find this package and legacy_opt in the checkout
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow as tf

import legacy_opt
from benchmarks import keras_bridge, report, workloads
from legacy_opt import versions
from legacy_opt.compat import read_rows_only, to_keras

v1 = tf.compat.v1
COLUMNS, BATCH, WARM_UP = 32, 4096, 3
_RATE = 0.01
_ROWS_ONLY = "read_rows_only"  # end of the names of trainings in which Embeddings read rows only


def _own(generation, legacy=False):
    home = keras_bridge.keras_of(generation).optimizers
    home = getattr(home, "legacy", None) if legacy else home
    return home and home.Adam(_RATE, epsilon=1e-8)


def _bridged(generation, optimizer, native=False):
    if native:
        legacy_opt.native.accelerate(optimizer, require=True)
    return to_keras(optimizer, api=keras_bridge.APIS[generation])


def makers(newest):
    """Returns a dict from each optimizer's name to (Keras' generation, function).

    The function creates the optimizer. It returns None if this TensorFlow has no such optimizer.

    Args:
      newest: the newest generation of Keras that is available, 2 or 3.
    """
    v1_optimizers = {
        "v1 Adam": lambda: v1.train.AdamOptimizer(_RATE),
        "LazyAdam": lambda: legacy_opt.LazyAdamOptimizer(_RATE),
        "AdagradDecay": lambda: legacy_opt.AdagradDecayOptimizer(_RATE, None),
    }
    found = {f"Keras {newest} Adam": (newest, lambda: _own(newest))}
    if newest == 3:
        found["Keras 2 Adam"] = 2, lambda: _own(2)
    found["Keras 2 legacy Adam"] = 2, lambda: _own(2, legacy=True)
    for name, make in v1_optimizers.items():
        found[f"{name}, to_keras"] = newest, lambda make=make: _bridged(newest, make())
    for name, make in v1_optimizers.items():
        found[f"{name}, native"] = newest, lambda make=make: _bridged(newest, make(), native=True)
    if newest == 3:
        adam, lazy = v1_optimizers["v1 Adam"], v1_optimizers["LazyAdam"]
        found["LazyAdam, native, Keras 2"] = 2, lambda: _bridged(2, lazy(), native=True)
        found["v1 Adam, native, " + _ROWS_ONLY] = 3, lambda: _bridged(3, adam(), native=True)
        found["LazyAdam, native, " + _ROWS_ONLY] = 3, lambda: _bridged(3, lazy(), native=True)
    return found


def train(name, rows, steps):
    """Trains a new model.

    Returns:
      A dict: "seconds", the median of a step; "state", the bytes of the optimizer's slots; and
      "table", some rows of the trained table. Or None, if this TensorFlow has no such optimizer.
    """
    newest = versions.keras_facts()["generation"]
    generation, make = makers(newest)[name]
    optimizer = make()
    if optimizer is None:
        return None
    keras = keras_bridge.keras_of(generation)
    model = keras.Sequential(
        [
            keras.layers.Embedding(rows, COLUMNS),
            keras.layers.Dense(64, "tanh"),
            keras.layers.Dense(1),
        ]
    )
    if name.endswith(_ROWS_ONLY):
        read_rows_only(model)
    # By default, Keras 3 may compile with XLA. Keras 2 does not.
    model.compile(optimizer, "mse", **({"jit_compile": False} if generation == 3 else {}))
    ids = workloads.zipf_ids(workloads.Workload("", "", (rows, COLUMNS), ids=BATCH))[:steps]
    x = ids.reshape(-1, 1)
    model.build((None, 1))
    random = np.random.RandomState(1)
    weights = [0.1 * random.randn(min(1000, rows), COLUMNS).astype(np.float32)]
    weights[0] = np.tile(weights[0], (-(-rows // 1000), 1))[:rows]
    weights += [0.1 * random.randn(*each.shape).astype(np.float32) for each in model.weights[1:]]
    model.set_weights(weights)
    del weights
    watch = keras_bridge.watch(keras)
    model.fit(x, np.sin(x), BATCH, epochs=1, verbose=0, shuffle=False, callbacks=[watch])
    table = model.get_weights()[0]
    variables = getattr(optimizer, "variables", ())
    variables = variables() if callable(variables) else variables
    return {
        "seconds": float(np.median(watch.times[WARM_UP:])),
        "state": sum(int(np.prod(each.shape)) * 4 for each in variables),
        "table": table[np.unique(ids)[:500]].tolist(),
    }


def measure(name, rows, steps):
    """Returns the result of `train` in a new process; None if the process fails."""
    command = [sys.executable, os.path.abspath(__file__), "--train", name, str(rows), str(steps)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        errors = done.stderr.decode().strip().splitlines() or [f"exit code {done.returncode}"]
        print(f"{name}: {errors[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.decode().splitlines()[-1])


def lines_of(rows, results):
    """Yields the lines of a Markdown table with the results for Embeddings with `rows` rows.

    The column "ratio" compares with the Adam of the newest Keras. If it failed, the ratios are nan.
    """
    newest = next(iter(makers(versions.keras_facts()["generation"])))
    base = results.get(newest, {"seconds": np.nan})["seconds"]
    original = np.array(results.get("v1 Adam, to_keras", {"table": np.nan})["table"])
    yield f"| {rows:,} rows | ms/step | ratio | slots, MB | largest difference from v1's Adam |"
    yield "|---|---|---|---|---|"
    for name, each in results.items():
        difference = np.abs(np.array(each["table"]) - original).max()
        is_adam = "Lazy" not in name and "Adagrad" not in name
        yield "| {} | {:.1f} | {:.2f} | {:.0f} | {} |".format(
            name,
            1e3 * each["seconds"],
            each["seconds"] / base,
            each["state"] / 1e6,
            f"{difference:.1g}" if is_adam else "another algorithm",
        )


def plot(path, found):
    """Draws the step time as a function of the number of rows."""
    from matplotlib.figure import Figure

    axes = Figure(figsize=(7, 4.5), layout="tight").subplots()
    for number, name in enumerate(next(iter(found.values()))):
        rows = [count for count, results in found.items() if name in results]
        times = [1e3 * found[count][name]["seconds"] for count in rows]
        is_native = "native" in name
        style = "--" if name.startswith("Keras") else "-" if is_native else ":"
        marker = "o" if is_native else "."
        color = "black" if name.endswith(_ROWS_ONLY) else f"C{number}"
        axes.loglog(rows, times, style, marker=marker, color=color, label=name)
    axes.set_xlabel("rows of the Embedding (32 columns)")
    axes.set_ylabel("milliseconds of a training step")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=8)
    axes.figure.savefig(path, dpi=120)


def main(argv=None):
    """Runs the benchmark and returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", default="10000,100000,1000000,10000000", help="(default: %(default)s)")
    add("--steps", type=int, default=23, help="steps of each training (default: %(default)s)")
    add("--plot", metavar="PNG", help="draw the results")
    add("--train", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if not tf.executing_eagerly():  # TensorFlow 1.15
        v1.enable_v2_behavior()
    if arguments.train:
        name, rows, steps = arguments.train
        print(json.dumps(train(name, int(rows), int(steps))))
        return 0
    print(
        ", ".join(
            "{}: {}".format(*item) for item in report.environment(tensorflow=tf.__version__).items()
        )
    )
    found = {}
    for rows in map(int, arguments.rows.split(",")):
        results = found[rows] = {}
        for name in makers(versions.keras_facts()["generation"]):
            result = measure(name, rows, arguments.steps)
            if result is not None:
                results[name] = result
        print("\n" + "\n".join(lines_of(rows, results)), flush=True)
    if arguments.plot:
        plot(arguments.plot, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
