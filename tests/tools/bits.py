"""Checks that native kernels compute the same bits everywhere (`make bits`).

Compares TensorFlow versions, instruction sets and numbers of threads: in trainings, and at the
corners of operations (tests/support/native_corners.py).

python -m tests.tools.bits FOLDER PYTHON…   # compares the given Python interpreters' TensorFlows
python -m tests.tools.bits --train THREADS   # prints the hashes of trainings
"""

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

THREADS = ("1", "2", "4")
DTYPES = ("float32", "float64", "bfloat16", "float16")
CORNERS = "corners"
# These optimizers have no native kernels for sparse gradients.
WITHOUT_ROWS = ("ConditionalGradientOptimizer", "NovoGradOptimizer")
# A dict from each instruction set to a flag for the C compiler and to the name of a feature that
# processors with the instruction set have. Users get "all": a kernel contains code for all
# instruction sets, and chooses one when it is loaded.
INSTRUCTION_SETS = {
    "all": ("", ""),
    "x86-64": ("-march=x86-64", "sse2"),
    "x86-64-v3": ("-march=x86-64-v3", "avx2"),
    "x86-64-v4": ("-march=x86-64-v4", "avx512vl"),
}


def main(folder, *pythons):
    """Compares all trainings.

    Returns:
      0 if, for each dtype and the corners, all results have the same bits; otherwise 1.
    """
    if not pythons:
        sys.exit("Name at least one Python interpreter.")
    found = {}
    has_compiler = shutil.which(os.environ.get("CC", "cc"))
    for instructions, (flags, feature) in INSTRUCTION_SETS.items():
        if flags and not has_compiler:
            print(f"{instructions}: left out, because there is no C compiler", flush=True)
            continue
        if feature and feature not in processor_features():
            print(f"{instructions}: left out, because this processor has no {feature}", flush=True)
            continue
        home = Path(folder, instructions)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = dict(os.environ, LEGACY_OPT_KERNELS=str(home), CC=compiler(home, flags))
        environment.update(TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore")
        for python, threads in itertools.product(pythons, THREADS):
            command = [python, "-m", "tests.tools.bits", "--train", threads]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            for line in done.stdout.decode().splitlines():
                name, *words = line.split() or [""]
                if name in (*DTYPES, CORNERS):
                    print(f"{line}  {instructions}  {threads} threads", flush=True)
                    found.setdefault(name, set()).add(words[0])
    for name, several in found.items():
        print(f"{name}: {'the same bits' if len(several) == 1 else f'{len(several)} results'}")
    return int(any(len(several) > 1 for several in found.values()))


def processor_features():
    """Returns the features of this processor as Linux names them."""
    path = Path("/proc/cpuinfo")
    return path.read_text().split() if path.exists() else []


def compiler(home, flags):
    """Returns the path of the C compiler, or of a script that calls the compiler with `flags`."""
    cc = os.environ.get("CC", "cc")
    if not flags:
        return cc
    path = home / "cc"
    path.write_text(f'#!/bin/sh\nexec {cc} "$@" -UVECTORIZED -DVECTORIZED= {flags}\n')
    path.chmod(0o700)
    return str(path)


def train(threads):
    """Prints a hash of all trained variables of each dtype, and of the results at corners."""
    import tensorflow as tf

    from legacy_opt.compat.cli import native_diagnosis
    from legacy_opt.native.runtime import tensorflow_operations

    if hasattr(tf.compat.v1, "disable_eager_execution"):
        tf.compat.v1.disable_eager_execution()
    tensorflow_operations.build()
    classes = [cls for cls in native_diagnosis.classes() if not native_diagnosis.reason(cls)]
    if not classes:
        sys.exit("No optimizer has a native kernel.")
    lines = []
    for dtype in DTYPES:
        digest, count = hashlib.md5(), 0
        for cls, use_resource in itertools.product(classes, (False, True)):
            optimizer = native_diagnosis.made(cls)
            if tf.as_dtype(dtype) not in optimizer._valid_dtypes():
                continue
            for value in trained(optimizer, dtype, use_resource, int(threads)):
                digest.update(value.tobytes())
                count += 1
        lines.append(f"{dtype}  {digest.hexdigest()}  {count} arrays")
    if shutil.which(os.environ.get("CC", "cc")):  # legacy-opt-native has no kernels for corners
        lines.append(corners())
    print("\n".join(f"{line}  TensorFlow {tf.__version__}" for line in lines))


def corners():
    """Returns a line with a hash of the results of operations at their corners."""
    import numpy as np

    from legacy_opt.native.runtime import compiled_kernels
    from tests.support import native_corners

    digest, count = hashlib.md5(), 0
    for dtype in native_corners.DTYPES:
        for group in native_corners.groups(dtype):
            kernel = compiled_kernels.compiled(*native_corners.program(group, dtype))
            for name, result in sorted(native_corners.run(kernel, dtype).items()):
                if result.dtype.kind not in "bi":  # IEEE 754 does not define the sign of a NaN
                    result = result.astype(np.float64)
                    result[np.isnan(result)] = np.nan
                digest.update(name.encode() + result.tobytes())
                count += 1
    return f"{CORNERS}  {digest.hexdigest()}  {count} arrays"


def trained(optimizer, dtype, use_resource, threads):
    """Returns the values of all variables and slots after three steps, in the order of names."""
    import numpy as np
    import tensorflow.compat.v1 as tf

    random = np.random.RandomState(0)  # draws only integers, equal with all versions of NumPy

    def numbers(*shape):
        return tf.cast((random.randint(-4000, 4000, shape) / 1024.0).astype(np.float32), dtype)

    optimizer.native = "require"
    # The matrix has more elements than a thread updates at a time. The ids of the table's gradient
    # are repeated.
    shapes = {"matrix": (601, 257), "vector": (37,), "table": (60, 5)}
    config = tf.ConfigProto(intra_op_parallelism_threads=threads)
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        step = tf.train.get_or_create_global_step()
        pairs = []
        for name, shape in shapes.items():
            variable = tf.get_variable(name, initializer=numbers(*shape), use_resource=use_resource)
            gradient = numbers(*shape)
            if name == "table" and type(optimizer).__name__ not in WITHOUT_ROWS:
                gradient = tf.IndexedSlices(gradient, tf.constant(random.randint(0, 60, 60)), shape)
            pairs.append((gradient, variable))
        train_op = optimizer.apply_gradients(pairs, global_step=step)
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train_op)
        variables = sorted(tf.global_variables(), key=lambda variable: variable.name)
        return [np.ascontiguousarray(value) for value in session.run(variables)]


if __name__ == "__main__":
    if sys.argv[1] == "--train":
        train(sys.argv[2])
    else:
        sys.exit(main(*sys.argv[1:]))
