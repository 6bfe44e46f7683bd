"""Tries an installed legacy-opt, for `make release-check`.

python -I smoke.py [commands|keras|native]…

`-I` hides the checkout. Run it in an empty folder, with the Python of an environment that has only
TensorFlow and the package. The part `native` prints a hash of trained variables, which is the same
with every TensorFlow.
"""

import functools
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import legacy_opt
from legacy_opt import compat, recorded
from legacy_opt.recorded.native import NativeOptimizer

v1 = tf.compat.v1
OLD_PROGRAM = """import tensorflow as tf

w = tf.get_variable("w", [3])
loss = tf.reduce_sum(tf.square(w - 1.0))
train_op = tf.contrib.opt.LazyAdamOptimizer(0.1).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(100):
        session.run(train_op)
    assert session.run(loss) < 0.01
    tf.train.Saver().save(session, "./model.ckpt", write_meta_graph=False)
print("trained")
"""
# {words of a command: its exit code, and a text that it prints}
COMMANDS = {
    "--version": (0, legacy_opt.__version__),
    "doctor": (0, "No problems found."),
    "audit old.py": (0, "1 to change"),
    "run old.py": (0, "trained"),
    "inspect model.ckpt": (0, "w/Adam"),
    "docs migration": (0, "audit"),
    "export model.ckpt --rule LazyAdamOptimizer --out state.npz": (0, "state.npz"),
}
# Optimizers with kernels of different kinds.
CLASSES = (
    legacy_opt.AdagradDecayOptimizer,
    legacy_opt.LazyAdamOptimizer,
    legacy_opt.LAMBOptimizer,
    legacy_opt.AdafactorOptimizer,
)


def commands():
    """Runs commands of `legacy-opt` on an old program and its checkpoint."""
    Path("old.py").write_text(OLD_PROGRAM)
    command = Path(sys.executable).with_name("legacy-opt")
    for words, (code, text) in COMMANDS.items():
        done = subprocess.run([str(command), *words.split()], capture_output=True, text=True)
        if done.returncode != code or text not in done.stdout:
            sys.exit(f"legacy-opt {words}: {done.returncode}\n{done.stdout}{done.stderr}")


def keras():
    """Trains a Keras model with an optimizer of this package."""
    optimizer = compat.to_keras(legacy_opt.LazyAdamOptimizer(0.1))
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer, "mse")
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
    losses = model.fit(x, 3 * x + 1, epochs=30, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < 0.1 < losses[0], losses


def native():
    """Trains with native kernels and without; prints a hash of what native kernels computed."""
    if hasattr(v1, "disable_eager_execution"):
        v1.disable_eager_execution()
    digest = hashlib.sha256()
    for cls in CLASSES:
        composed, compiled = trained(cls, native=None), trained(cls, native="require")
        for one, other in zip(composed, compiled):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=cls.__name__)
            digest.update(np.ascontiguousarray(other).tobytes())
    for name in recorded.catalogue():  # the recorded rules in the package
        weights = {"w": draw(np.random.RandomState(0), 40, 6)}
        gradient = weights["w"][::-1].copy()
        NativeOptimizer(recorded.load(name), weights).step({"w": gradient})
        digest.update(weights["w"].tobytes())
    print(json.dumps({"tensorflow": tf.__version__, "bits": digest.hexdigest()}))


def trained(cls, native):
    """Returns all variables after three steps with a dense and a sparse gradient."""
    numbers = functools.partial(draw, np.random.RandomState(0))
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        needed = {"global_step": step} if cls is legacy_opt.AdagradDecayOptimizer else {}
        optimizer = cls(learning_rate=0.1, **needed)
        optimizer.native = native
        dense, table = (
            v1.get_variable(name, initializer=numbers(40, 6), use_resource=True)
            for name in ("dense", "table")
        )
        rows = tf.IndexedSlices(tf.constant(numbers(3, 6)), tf.constant([4, 9, 4]), (40, 6))
        pairs = [(tf.constant(numbers(40, 6)), dense), (rows, table)]
        train_op = optimizer.apply_gradients(pairs, global_step=step)
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train_op)
        return session.run(sorted(v1.global_variables(), key=lambda variable: variable.name))


def draw(random, *shape):
    """Returns numbers that are the same in all versions of NumPy: random integers / 1024."""
    return (random.randint(-4000, 4000, shape) / 1024.0).astype(np.float32)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for part in sys.argv[1:]:
        {"commands": commands, "keras": keras, "native": native}[part]()
