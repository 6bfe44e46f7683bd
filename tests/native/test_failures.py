"""Tests failures on users' machines. Each failure gives one warning, and training continues.

The operations library is the library of TensorFlow operations that run native kernels.
"""

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native import settings
from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.runtime import cache, tensorflow_operations
from tests.native.rules import traced
from tests.native.training import START, Sgd, is_native, trained
from tests.support.processes import programs

pytestmark = pytest.mark.usefixtures("fresh")
v1 = tf.compat.v1


class Other(Sgd):
    """Gives each instance a new rule, so that the rule's kernel is not loaded yet."""

    number = 0

    def __init__(self):
        super().__init__()
        Other.number += 1
        self._factor = 1.0 + Other.number

    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * grad, {"sum": slots.sum + grad * self._factor}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Yields a new folder for kernels. The folder contains only the operations library."""
    path = tmp_path / "kernels"
    built = tensorflow_operations.path()
    path.mkdir(mode=0o700)
    shutil.copy(str(built), str(path))
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(path))
    cache.compiler.cache_clear()
    yield path
    monkeypatch.undo()
    cache.compiler.cache_clear()


def compiler(folder, script):
    """Writes a shell script that replaces the compiler; returns the script's path."""
    path = folder.parent / "compiler"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o700)
    return str(path)


# After this shell code, $1 is the compiler's output file.
OUTPUT = 'until [ "$1" = -o ]; do shift; done; shift; '
FAILURES = {
    "no compiler": ("exit 127", "is not on PATH"),
    "a compiler that is killed": (OUTPUT + 'echo > "$1"; kill -9 $$', "cannot compile"),
    "a full disk": ('ulimit -f 1; exec cc "$@"', "cannot compile"),
    "a foreign library": (OUTPUT + f'cp {shutil.which("true")} "$1"', "cannot be loaded"),
    "another program's library": ('cc "$@" -Dlegacy_opt_table=other', "contains no kernel"),
    "an old kernel": (
        'for x; do case "$x" in *.c) sed -i s/LEGACY_OPT_ABI,/7,/ "$x";; esac; done; cc "$@"',
        "does not fit",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_one_warning(name, folder, monkeypatch):
    script, message = FAILURES[name]
    path = compiler(folder, script)
    monkeypatch.setenv("CC", "no-such-compiler" if name == "no compiler" else path)
    optimizer = Other()
    optimizer.native = "auto"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value, _, types = trained(optimizer)
    texts = [str(each.message) for each in caught if each.category is NativeKernelWarning]
    (text,) = texts
    assert text.startswith("Other runs without a native kernel: ") and message in text
    assert not is_native(types)
    np.testing.assert_array_equal(value, START - 0.5)
    assert not [each for each in folder.iterdir() if each.name.startswith("compiling-")]


def without_operations(folder, monkeypatch):
    next(folder.iterdir()).unlink()


@pytest.mark.parametrize(
    ["change", "message"],
    [
        (without_operations, "run `legacy-opt build-kernels` first"),
        (
            lambda folder, monkeypatch: monkeypatch.setenv(
                cache.FOLDER_VARIABLE, str(next(folder.iterdir()) / "kernels")
            ),
            "cannot be created: .* Set LEGACY_OPT_KERNELS",
        ),
        (
            lambda folder, monkeypatch: folder.chmod(0o777),
            "is not safe to use: other users may write to it",
        ),
        (
            # root may write anywhere
            lambda folder, monkeypatch: monkeypatch.setattr(
                os, "access", lambda _, m: m != os.W_OK
            ),
            "has no kernels and is read-only",
        ),
        (
            lambda folder, monkeypatch: monkeypatch.setenv("CC", "no-such-compiler"),
            "There is no C compiler",
        ),
    ],
)
def test_enable_says_why_no_kernel_can_run(change, message, folder, monkeypatch):
    change(folder, monkeypatch)
    if change is without_operations:
        monkeypatch.setattr(tensorflow_operations, "_loaded", [])
    message = f"this process cannot run native kernels: .*{message}.*"
    with pytest.raises(ValueError, match=message) as caught:
        legacy_opt.native.enable(require=True)
    assert "`legacy-opt build-kernels`" in str(caught.value)
    assert settings.current()[0] is None
    with pytest.warns(NativeKernelWarning, match=message) as warned:
        legacy_opt.native.enable()()
    assert warned[0].filename == __file__
    legacy_opt.native.enable()()  # the same warning is issued once


def test_enable_is_quiet_if_kernels_can_be_compiled_or_are_there(folder, monkeypatch):
    legacy_opt.native.enable()()
    monkeypatch.setenv("CC", "no-such-compiler")
    (folder / cache.file_name("0" * 32)).touch()
    legacy_opt.native.enable(require=True)()


COMPILE = """
import sys
from legacy_opt.native.runtime import cache
cache.load(sys.stdin.read())
assert "tensorflow" not in sys.modules
"""


def test_four_processes_that_compile_at_once(folder):
    """Compiling a kernel does not import TensorFlow."""
    source = emit(traced(lambda grad, value: grad + 2.25))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    processes = [
        subprocess.Popen([sys.executable, "-c", COMPILE], stdin=subprocess.PIPE, env=environment)
        for _ in range(4)
    ]
    for process in processes:
        process.stdin.write(source.encode())
        process.stdin.close()
    assert [process.wait(60) for process in processes] == [0] * 4
    assert sorted(each.suffix for each in folder.iterdir()) == [".so", ".so"]


FORKED = """
import os, sys
import numpy as np
import tensorflow as tf
import legacy_opt
from legacy_opt.native.runtime import tensorflow_operations
v1 = tf.compat.v1
legacy_opt.native.enable(require=True)

def train():
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("w", initializer=tf.zeros([3]), use_resource=True)
        optimizer = legacy_opt.LazyAdamOptimizer(0.5)
        train_op = optimizer.apply_gradients([(tf.ones([3]), variable)])
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        return session.run(variable).tolist()

tensorflow_operations.load()
child = os.fork()
result = train()
print("child" if child == 0 else "parent", result, flush=True)
if child:
    sys.exit(bool(os.waitpid(child, 0)[1]))
"""


def run(program, *words, **environment):
    """Runs a program in a forked process; returns its output."""
    done = programs.run("-c", program, *words, seconds=300, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fork_after_the_operations_library_is_loaded():
    """Forks after loading the library, but before session.run. Only session.run starts threads."""
    lines = sorted(run(FORKED).splitlines())
    assert [line.split()[0] for line in lines] == ["child", "parent"]
    assert lines[0].split(maxsplit=1)[1] == lines[1].split(maxsplit=1)[1]


LOADED = """
import sys
import tensorflow as tf
v1 = tf.compat.v1
path, with_operations = sys.argv[1:]
if with_operations == "yes":
    from legacy_opt.native.runtime import tensorflow_operations
    tensorflow_operations.load()
try:
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.import_meta_graph(path + ".meta")
        saver.restore(session, path)
        session.run("train")
        print(session.run(v1.global_variables()[0]).tolist())
except Exception as error:
    print(str(error).splitlines()[0])
"""


def test_a_graph_without_the_operations_library(tmp_path):
    """A MetaGraph with kernels needs the library. Without it, an error names the operation."""
    path = str(tmp_path / "model")
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
        optimizer = Sgd()
        optimizer.native = "require"
        optimizer.apply_gradients([(tf.ones([2]), variable)], name="train")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            v1.train.Saver().save(session, path)
    assert "LegacyOptUpdate" in run(LOADED, path, "no")
    assert run(LOADED, path, "yes").splitlines()[-1] == "[0.5, 1.5]"
    assert Path(path + ".meta").exists()
