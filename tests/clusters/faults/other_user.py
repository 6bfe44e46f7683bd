"""Trains with kernels in folders that belong to a second account of this machine.

    python -m tests.clusters.faults.other_user --python /usr/bin/python3

Needs root: it creates the account with useradd, and deletes it at the end. --python names a Python
that other accounts can execute; it imports TensorFlow and this package through PYTHONPATH. Each
line shows a folder of kernels, and what a training says that may use kernels but does not need
them. The exit code is 1 if a training fails, loads a kernel of another account, or does not say why
it has none.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
ACCOUNT = "legacyopttest"
TRAINING = """
import warnings
import tensorflow as tf
import legacy_opt
v1 = tf.compat.v1
with warnings.catch_warnings(record=True) as caught, tf.Graph().as_default() as graph:
    warnings.simplefilter("always")
    legacy_opt.native.enable()
    w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
    train_op = legacy_opt.LazyAdamOptimizer(0.1).minimize(tf.reduce_sum(w))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(train_op)
types = [each.type for each in graph.get_operations()]
kernels = sum(each.startswith("LegacyOptUpdate") for each in types)
texts = [str(each.message) for each in caught if "Native" in each.category.__name__]
print(f"{kernels} updates by kernels;", *texts)
"""


class Machine:
    """Runs Python as root or as the second account."""

    def __init__(self, python, home):
        self.python, self.home = python, home

    def run(self, account, folder, *command):
        """Runs Python; returns the last line of its output."""
        variables = {"HOME": str(self.home / account), "TF_CPP_MIN_LOG_LEVEL": "3"}
        variables.update(PYTHONPATH=os.environ["PYTHONPATH"], PATH=os.environ["PATH"])
        variables.update(PYTHONDONTWRITEBYTECODE="1", LEGACY_OPT_KERNELS=str(folder))
        words = [f"{name}={value}" for name, value in variables.items()]
        done = subprocess.run(
            ["runuser", "-u", account, "--", "env", "-i", *words, self.python, *command],
            cwd=str(self.home),
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()
        return lines[-1] if lines and not done.returncode else f"FAILED: {lines[-1:]}"

    def build(self, account, name):
        """Returns a new folder, with kernels that the account compiles."""
        folder = self.home / name
        folder.mkdir(mode=0o700)
        shutil.chown(str(folder), account)
        self.run(account, folder, "-m", "legacy_opt", "build-kernels")
        return folder

    def copy(self, folder, name, mode=0o700, account="root"):
        """Returns a copy of a folder that the account owns; root owns the files in it."""
        path = self.home / name
        shutil.copytree(str(folder), str(path))
        shutil.chown(str(path), account)
        path.chmod(mode)
        return path


def cases(machine):
    """Yields (what the folder is, the account that trains, the folder, whether it has kernels)."""
    own = machine.build(ACCOUNT, "own")
    yield "its own", ACCOUNT, own, True
    yield "the other account's, which trains as root", "root", own, False
    yield "root's, closed", ACCOUNT, machine.copy(own, "closed"), False
    yield "root's, readable", ACCOUNT, machine.copy(own, "readable", 0o755), False
    yield "root's, writable for all", ACCOUNT, machine.copy(own, "open", 0o1777), False
    yield (
        "its own, with root's files (sudo)",
        ACCOUNT,
        machine.copy(own, "mixed", 0o700, ACCOUNT),
        False,
    )
    link = machine.home / "link"
    link.symlink_to(own)
    yield "a link to its own", ACCOUNT, link, False
    yield "not there, in a folder of root's", ACCOUNT, machine.home / "closed" / "new", False


def main(argv=None):
    """Runs the program; returns its exit code."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--python", default=sys.executable)
    wrong = 0
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o755)
        machine = Machine(parser.parse_args(argv).python, pathlib.Path(home))
        (machine.home / "root").mkdir()
        account_home = str(machine.home / ACCOUNT)
        subprocess.run(["useradd", "--create-home", "-d", account_home, ACCOUNT], check=True)
        try:
            for what, account, folder, has_kernels in cases(machine):
                line = machine.run(account, folder, "-c", TRAINING)
                number, _, why = line.partition(" updates by kernels;")
                right = number == "1" and not why if has_kernels else number == "0" and why
                wrong += not right
                print(f"{what}: {line.replace(home, '')}", flush=True)
        finally:
            subprocess.run(["userdel", ACCOUNT], check=True)
    print("wrong:", wrong)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
