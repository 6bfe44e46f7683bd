"""Tests that FIFOs, sockets and devices are never opened, and cause a one-line error."""

import contextlib
import os
import socket
import stat
import threading

import numpy as np
import pytest

from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
from tests.support.checkpoints.checkpoint_arrays import files_in, write
from tests.support.processes import programs

NAMES = {"fifo": "a FIFO (named pipe)", "socket": "a socket", "device": "a character device"}
KINDS = pytest.mark.parametrize("kind", ["fifo", "socket", "device"])


@contextlib.contextmanager
def special(path, kind):
    """Creates a special file. Fails if a FIFO is opened, which would block without a writer."""
    path, opened = str(path), []
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as unix:
            unix.bind(path)
            yield path
    elif kind == "device":
        os.symlink(os.devnull, path)
        yield path
    else:
        os.mkfifo(path)
        done = threading.Event()

        def writer():
            while not done.is_set():
                os.close(os.open(path, os.O_WRONLY))
                opened.append(not done.is_set())

        thread = threading.Thread(target=writer, daemon=True)
        thread.start()
        try:
            yield path
        finally:
            done.set()
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            thread.join(timeout=5)
            os.close(reader)
        assert not any(opened), "the FIFO was opened, which would hang without a writer"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Writes a checkpoint into a new working directory, and returns this directory.

    The tests use relative paths, because absolute paths would be too long for sockets.
    """
    monkeypatch.chdir(tmp_path)
    write("good", {"x": np.float32(1)})
    return tmp_path


# {test: (path of the special file, arguments of a command that would read it)}
READING = {
    "inspect": ("s", ("inspect", "s")),
    "inspect an index": ("s.index", ("inspect", "s")),
    "inspect a folder": ("checkpoint", ("inspect", ".")),
    "inspect data": ("good.data-00000-of-00001", ("inspect", "good")),
    "export data": (
        "good.data-00000-of-00001",
        ("export", "good", "--rule", "MomentumOptimizer", "--out", "new.npz"),
    ),
    "inspect V1 format": ("v1-00000-of-00001", ("inspect", "v1")),
    "convert": ("s", ("convert", "s", "new")),
    "name map": ("s", ("convert", "good", "new", "--name-map", "s")),
    "audit": ("s", ("audit", "s")),
    "audit a notebook": ("s.ipynb", ("audit", "s.ipynb")),
}
# {test: (path of the special file, arguments of a command that would write it)}
WRITING = {
    "convert to": ("new", ("convert", "good", "new")),
    "overwrite": ("new", ("convert", "good", "new", "--overwrite")),
    "overwrite an index": ("new.index", ("convert", "good", "new", "--overwrite")),
    "state": ("checkpoint", ("convert", "good", "new")),
}


@KINDS
@pytest.mark.parametrize("where", sorted({**READING, **WRITING}))
def test_commands(folder, screen, kind, where):
    name, words = {**READING, **WRITING}[where]
    if os.path.exists(name):
        os.remove(name)
    with special(name, kind):
        before = files_in(folder)
        message = screen.refused(*words)
        assert NAMES[kind] in message
        assert files_in(folder) == before
        if where in READING:
            assert name in message
        else:
            assert not stat.S_ISREG(os.stat(name).st_mode)


@KINDS
def test_the_writer_and_the_reader(folder, kind):
    with special("s", kind):
        with pytest.raises(CheckpointError, match="'s' is a"):
            open_checkpoint("s")
        with pytest.raises(CheckpointError, match="'s' is a"), CheckpointWriter("s"):
            pass


@KINDS
def test_audit_of_a_folder_goes_on(folder, screen, kind):
    (folder / "code").mkdir()
    (folder / "code" / "b.py").write_text("import tensorflow as tf\ntf.train.AdamOptimizer(1)\n")
    with special("code/a.py", kind):
        report = screen.json("audit", "code", code=1)
    assert [use["kind"] for use in report["uses"]] == ["unreadable", "constructor"]
    assert NAMES[kind] in report["uses"][0]["advice"]


@pytest.mark.parametrize("command", ["audit", "run"])
def test_a_fifo_without_a_writer_does_not_block(folder, command):
    os.mkfifo("s")
    for path, message in {"s": "a FIFO", "/dev/zero": "a character device"}.items():
        limit = "import resource as r; r.setrlimit(r.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        program = limit + "import sys, legacy_opt.compat.cli as cli; sys.exit(cli.main(%r))"
        done = programs.run("-c", program % [command, str(folder / path)], seconds=60)
        assert done.returncode == 2 and message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", ["inspect", "audit"])
def test_links(folder, screen, command):
    os.symlink("nowhere", "dangling")
    assert "dangling" in screen.refused(command, "dangling")
    (folder / "code.py").write_text("import tensorflow as tf\n")
    os.symlink("code.py" if command == "audit" else "good.index", "link.index")
    assert screen.run(command, "link.index")[0] == (0 if command == "audit" else 2)
