"""Tests files that are complete after a kill or a loss of power.

`python -m tests.tools.crash_orders` shows what a loss of power can leave of each writer's file.
"""

import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from legacy_opt.durable_files import replaced
from tests.support.paths import ROOT

pytestmark = pytest.mark.once
WRITER = """
import sys, time
from legacy_opt.durable_files import replaced
with replaced(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(600)
"""


def writer(path):
    """Returns a process that is writing a file."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=str(ROOT)
    )
    assert process.stdout.readline() == b"writing\n"
    return process


def write(path, text="new"):
    with replaced(path) as temporary:
        temporary.write_text(text)


def names_in(folder):
    return sorted(each.name for each in folder.iterdir())


def test_content_is_on_the_disk_before_the_name_and_the_name_before_the_end(tmp_path, monkeypatch):
    calls = []

    def fsync(descriptor, original=os.fsync):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        original(descriptor)

    def replace(source, target, original=os.replace):
        calls.append("rename")
        original(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write(tmp_path / "a")
    assert calls == ["file", "rename", "folder"]


def test_what_killed_processes_left_is_removed_and_what_others_write_is_not(tmp_path):
    path = tmp_path / "[a]*.npz"
    path.write_text("old")
    killed, running = writer(path), writer(path)
    try:
        killed.kill()
        killed.wait()
        assert len(names_in(tmp_path)) == 3
        write(path)
        left = names_in(tmp_path)
        assert len(left) == 2 and path.read_text() == "new"
        write(path, "newer")
        assert names_in(tmp_path) == left
    finally:
        running.kill()
        running.wait()
    write(path)
    assert names_in(tmp_path) == [path.name]


def test_threads_do_not_share_a_temporary_file(tmp_path):
    path, both = tmp_path / "a", threading.Barrier(2)

    def write_with_other(text):
        with replaced(path) as temporary:
            temporary.write_text(text)
            both.wait(60)
            assert temporary.read_text() == text

    threads = [threading.Thread(target=write_with_other, args=(text,)) for text in "xy"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert path.read_text() in "xy" and names_in(tmp_path) == ["a"]


def test_a_symbolic_link_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder" / "file")
    for text in ("first", "second"):  # a link to no file, and to a file
        write(link, text)
        assert link.is_symlink() and (tmp_path / "folder" / "file").read_text() == text
    assert names_in(tmp_path / "folder") == ["file"]


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    write(path, "old")
    with pytest.raises(ZeroDivisionError), replaced(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old" and names_in(tmp_path) == ["a"]


def test_the_file_has_the_permissions_of_other_new_files(tmp_path):
    write(tmp_path / "ours")
    (tmp_path / "other").write_text("")
    modes = {each.name: each.stat().st_mode for each in tmp_path.iterdir()}
    assert modes["ours"] == modes["other"]


def test_an_error_names_the_file_that_the_user_has_named(tmp_path):
    path = tmp_path / "missing" / "a"
    with pytest.raises(FileNotFoundError) as caught:
        write(path)
    assert caught.value.filename == str(path)


def test_sigterm_leaves_no_file_of_a_command(tmp_path):
    program = (
        "import sys, time, legacy_opt.proofs as proofs\n"
        "from legacy_opt.durable_files import replaced\n"
        "def write(path, proof):\n"
        "    with replaced(path):\n"
        "        print('writing', file=sys.__stdout__, flush=True)\n"
        "        time.sleep(600)\n"
        "proofs.write = write\n"
        "from legacy_opt.compat import cli\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    words = ["prove", "draw", "AdamOptimizer", "--out", str(tmp_path / "some.proof")]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, cwd=str(ROOT)
    )
    assert process.stdout.readline() == b"writing\n"
    assert len(names_in(tmp_path)) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert names_in(tmp_path) == []
