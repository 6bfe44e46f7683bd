"""Shows what a loss of power can leave of each file that legacy-opt writes.

    python -m tests.tools.crash_orders

While each writer replaces an old file, `strace` (a package of Linux distributions) records its
calls. They are replayed up to each moment. What POSIX promises is then on the disk: the content of
a file at its last `fsync`, and the names in a folder at the last `fsync` of the folder. Of the
later changes of names, each subset may be there, too. In each case, the file must be the old or the
whole new one; a checkpoint may also be missing. After the last call, it must be the new one. The
program prints the number of cases, and fails if one is wrong.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.paths import ROOT

CALLS = "openat,creat,write,pwrite64,writev,pwritev,ftruncate,mmap,fsync,fdatasync"
CALLS += ",rename,renameat,renameat2,unlink,unlinkat"
WRITES = ("write", "pwrite64", "writev", "pwritev", "ftruncate")
TEXT, DESCRIPTOR = re.compile(r'"([^"]*)"'), re.compile(r"\d+<([^>]*)>")
AT_FDCWD = re.compile(r"AT_FDCWD<[^>]*>")


def write_record(path, number):
    from legacy_opt import recorded

    recorded.save(recorded.load("AdamOptimizer" if number else "AdagradOptimizer"), path)


def write_state(path, number):
    import numpy as np

    from legacy_opt.recorded import state_files

    state_files.write_arrays(path, [("a", np.full(40_000, number, "f4")), ("b", np.ones(3))])


def write_proof(path, number):
    from legacy_opt import proofs, recorded

    proofs.write(path, proofs.draw(recorded.load("MomentumOptimizer"), steps=2 + number))


def write_torch(path, number):
    import torch

    from legacy_opt.durable_files import replaced

    with replaced(path) as temporary:
        torch.save({"a": torch.full((50_000,), float(number))}, temporary)


def write_kernel(path, number):
    from legacy_opt.native.runtime import cache

    command = ["cc", "-shared", "-fPIC"]
    cache.compile_library(command, f"int number = {number};", ".c", Path(path))


def write_checkpoint(path, number):
    import numpy as np

    from legacy_opt.compat.state.checkpoint_files import writer

    writer.SHARD_BYTES = 3000  # three data files
    with writer.CheckpointWriter(path, overwrite=True) as target:
        for name in "abc":
            target.add(name, np.full(900, number, "f4"))


def write_keras(path, number):
    from argparse import Namespace

    import tensorflow as tf

    from legacy_opt.compat.state.checkpoints import conversion_through_keras as through_keras

    model = tf.keras.Sequential([tf.keras.layers.Dense(50, input_shape=(9 + number,))])
    chosen = Namespace(destination=path, overwrite=True, dry_run=False, partial=False)
    through_keras._save(through_keras._Made(model, None), chosen, None)


# The function, and the file that it writes.
WRITERS = {
    "record": (write_record, "rule.json"),
    "state file": (write_state, "state.npz"),
    "proof": (write_proof, "some.proof"),
    "file of PyTorch": (write_torch, "own.pt"),
    "kernel": (write_kernel, "kernel.so"),
    "file of Keras": (write_keras, "model.h5"),
    "checkpoint": (write_checkpoint, "model.ckpt"),
}


class Disk:
    """The names in a folder and the files that they lead to, in memory and on the disk.

    Files are numbers. Those below `first_new` are old ones, whose content is on the disk.
    """

    def __init__(self, folder):
        self.names = {str(each): number for number, each in enumerate(sorted(folder.rglob("*")))}
        self.on_disk = dict(self.names)
        self.first_new = self.count = len(self.names)
        self.torn = set()  # new files with writes after their last fsync
        self.pending = []  # changes of names since the last fsync of their folder: (name, file)

    def change(self, *pairs):
        """Notes that names lead to other files, or to none (None), by one call."""
        self.names.update(pairs)
        self.pending.append(pairs)

    def call(self, text):
        """Does a call that strace has written."""
        name, _, rest = text.partition("(")
        if rest.rpartition(" = ")[2].startswith("-"):
            return  # it has failed
        quoted = [os.path.abspath(each) for each in TEXT.findall(rest)]
        opened = DESCRIPTOR.search(AT_FDCWD.sub("", rest))
        if name in ("openat", "creat") and ("O_CREAT" in rest or "O_TRUNC" in rest):
            if self.names.get(quoted[0]) is None:
                self.change((quoted[0], self.count))
                self.count += 1
            self.torn.add(self.names[quoted[0]])
        elif name in WRITES or (name == "mmap" and "MAP_SHARED" in rest and "PROT_WRITE" in rest):
            if opened and self.names.get(opened[1]) is not None:
                self.torn.add(self.names[opened[1]])
        elif name in ("fsync", "fdatasync"):
            self.torn.discard(self.names.get(opened[1]))
            done = [each for each in self.pending if os.path.dirname(each[-1][0]) == opened[1]]
            self.on_disk.update(pair for pairs in done for pair in pairs)
            self.pending = [each for each in self.pending if each not in done]
        elif name.startswith("rename"):
            self.change((quoted[0], None), (quoted[1], self.names[quoted[0]]))
        elif name.startswith("unlink") and "AT_REMOVEDIR" not in rest:
            self.change((quoted[0], None))

    def after_a_crash(self, watched):
        """Yields the names that may be on the disk, and their files; only `watched` matter."""
        pending = [each for each in self.pending if any(name in watched for name, _ in each)]
        for size in range(len(pending) + 1):
            for chosen in itertools.combinations(pending, size):
                yield {**self.on_disk, **dict(pair for pairs in chosen for pair in pairs)}

    def state_of(self, name, names):
        """Returns "old", "new", "none" or "torn"."""
        file = names.get(name)
        if file is None:
            return "none"
        return "old" if file < self.first_new else "torn" if file in self.torn else "new"


def found(disk, path, names, files):
    """Returns the state of a file, or of a checkpoint by that of its index and its data files."""
    if not any(files):
        return disk.state_of(path, names)
    index = disk.state_of(path + ".index", names)
    if index in ("old", "new"):
        for each in files[index == "new"]:
            if disk.state_of(each, names) != index:
                return f"index {index}, {os.path.basename(each)} {disk.state_of(each, names)}"
    return index


def calls_of(command, log):
    """Runs a command, and returns its calls as lines in the order of time."""
    options = ["-ff", "-ttt", "-y", "-s", "4096", "-e", f"trace={CALLS}", "-o", str(log)]
    run = [shutil.which("strace"), *options, *command]
    subprocess.run(run, check=True, cwd=str(ROOT), stdout=subprocess.DEVNULL)
    lines = [each for file in log.parent.iterdir() for each in file.read_text().splitlines()]
    return [line.partition(" ")[2] for line in sorted(lines)]


def states_after_crashes(name, folder):
    """Returns the states that crashes leave as {state: number of cases}, and those at the end."""
    path = str(folder / WRITERS[name][1])
    command = [sys.executable, "-m", "tests.tools.crash_orders", name, path]
    subprocess.run([*command, "0"], check=True, cwd=str(ROOT), stdout=subprocess.DEVNULL)
    disk, old_data = Disk(folder), data_files(path)
    with tempfile.TemporaryDirectory() as logs:
        calls = calls_of([*command, "1"], Path(logs, "log"))
    files, states = (old_data, data_files(path)), {}
    watched = {path, path + ".index", *old_data, *files[1]}
    for call in ["", *(each for each in calls if str(folder) in each)]:
        disk.call(call)
        at_the_end = set()
        for names in disk.after_a_crash(watched):
            state = found(disk, path, names, files)
            at_the_end.add(state)
            states[state] = states.get(state, 0) + 1
    return states, at_the_end


def data_files(path):
    return sorted(map(str, Path(path).parent.glob(Path(path).name + ".data-*")))


def main(words):
    """Prints what crashes leave of each file, or is the writer of one file."""
    if words:
        name, path, number = words
        WRITERS[name][0](path, int(number))
        return 0
    fails = False
    for name in WRITERS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                states, at_the_end = states_after_crashes(name, Path(os.path.realpath(folder)))
            except subprocess.CalledProcessError:
                print(f"{name:16} cannot be written here", flush=True)
                continue
        allowed = {"old", "new"} | ({"none"} if name == "checkpoint" else set())
        fails |= not set(states) <= allowed or at_the_end != {"new"} or "new" not in states
        text = ", ".join(f"{state} {count}" for state, count in sorted(states.items()))
        print(f"{name:16} {text}; at the end {', '.join(at_the_end)}", flush=True)
    return int(fails)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
