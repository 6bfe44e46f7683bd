"""Prints how often results of native kernels differ from TensorFlow's (`make native-differences`).

python -m tests.tools.native_differences PYTHON…   # a table of all given interpreters' TensorFlows
python -m tests.tools.native_differences --measure   # the numbers of one TensorFlow, as JSON

With the folder of another checkout in PYTHONPATH, it prints the table of that checkout.
"""

import functools
import json
import os
import subprocess
import sys
import warnings

DTYPES = ("float32", "float64", "bfloat16", "float16")
WAYS = ("dense", "sparse")
SHAPE = 211, 173
STEPS = 4


def main(*pythons):
    """Prints the table of the given interpreters' TensorFlows."""
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore")
    found = {}
    for python in pythons:
        command = [python, os.path.abspath(__file__), "--measure"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        version, numbers = json.loads(done.stdout.decode().splitlines()[-1])
        found[version] = numbers
    print(table(found))


def table(found):
    """Returns a table as Markdown.

    Args:
      found: a dict from TensorFlow's version to the result of `measured`.
    """
    lines = ["| optimizer | " + " | ".join(DTYPES) + " |", "|---" * (len(DTYPES) + 1) + "|"]
    rows = {}  # the cells of a row -> names
    for name in sorted({name for numbers in found.values() for name in numbers}):
        cells = tuple(_cell(found, name, dtype) for dtype in DTYPES)
        rows.setdefault(cells, []).append(name)
    lines += [f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in rows.items()]
    return "\n".join(lines)


def _cell(found, name, dtype):
    texts = []
    for way in WAYS:
        shares = {
            version: numbers[name][f"{dtype}, {way}"]
            for version, numbers in found.items()
            if numbers.get(name, {}).get(f"{dtype}, {way}") is not None
        }
        differ = {version: share for version, share in shares.items() if share}
        if not differ:
            texts.append("equal" if shares else "–")
            continue
        text = f"up to {100 * max(differ.values()):.2g} %"
        some = len(differ) < len(shares)
        texts.append(text + (f" on {', '.join(sorted(differ, key=_numbers))}" if some else ""))
    return texts[0] if texts[0] == texts[1] else f"dense {texts[0]}; sparse {texts[1]}"


def _numbers(version):
    return [int(each) for each in version.split(".")[:2]]


def measured():
    """Returns the shares of different elements of a trained matrix, for all optimizers.

    The result is a dict from name to a dict from "dtype, way" to the share; None without a kernel.
    """
    from legacy_opt.compat.cli import native_diagnosis
    from legacy_opt.optimizers import stock_rules

    classes = native_diagnosis.classes()
    makers = {cls.__name__: functools.partial(native_diagnosis.made, cls) for cls in classes}
    for cls in stock_rules.RULES:
        make = functools.partial(native_diagnosis.made, cls)
        makers[f"TensorFlow's {cls.__name__}"] = make
    return {
        name.replace("Optimizer", ""): {
            f"{dtype}, {way}": _share(make, dtype, way) for dtype in DTYPES for way in WAYS
        }
        for name, make in makers.items()
    }


def _share(make, dtype, way):
    import tensorflow as tf

    try:
        found, expected = _trained(make, dtype, way, True), _trained(make, dtype, way, False)
    except (TypeError, ValueError, tf.errors.OpError):  # no kernel, or not for this dtype
        return None
    is_nan = (found != found) & (expected != expected)
    return float(((found != expected) & ~is_nan).mean())


def _trained(make, dtype, way, native):
    """Returns the value of a matrix after some steps, as float64."""
    import numpy as np
    import tensorflow.compat.v1 as tf

    import legacy_opt

    random = np.random.RandomState(0)
    rows = SHAPE[0]
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.train.get_or_create_global_step()
        start = tf.cast(random.randn(*SHAPE), dtype)
        variable = tf.get_variable("w", initializer=start, use_resource=True)
        # Not a constant, because TensorFlow would compute squares of constants in another order.
        fed = tf.placeholder(tf.float64, SHAPE)
        feed, gradient = {fed: random.randn(*SHAPE)}, tf.cast(fed, dtype)
        if way == "sparse":  # with repeated ids
            gradient = tf.IndexedSlices(gradient, tf.constant(random.randint(0, rows, rows)), SHAPE)
        optimizer = make()
        if native:
            optimizer = legacy_opt.native.accelerate(optimizer, require=True)
        train_op = optimizer.apply_gradients([(gradient, variable)], global_step=step)
        session.run(tf.global_variables_initializer())
        for _ in range(STEPS):
            session.run(train_op, feed)
        return session.run(tf.cast(variable, tf.float64))


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        import tensorflow

        if hasattr(tensorflow.compat.v1, "disable_eager_execution"):
            tensorflow.compat.v1.disable_eager_execution()
        warnings.simplefilter("ignore")
        print(json.dumps([tensorflow.__version__, measured()]))
    else:
        main(*sys.argv[1:])
