"""Finds finished and unfinished checkpoints, and kills a process while it writes a checkpoint."""

import os
import pathlib
import re
import signal
import time

from tests.clusters.faults.lives import SECONDS

A_MOMENT = 0.01  # seconds; on an idle machine, a test's checkpoint is written in less time


def newest(directory):
    """Returns the number of the newest checkpoint that the file "checkpoint" lists, or 0."""
    try:
        text = (pathlib.Path(directory) / "checkpoint").read_text()
    except FileNotFoundError:
        return 0
    return max(int(number) for number in re.findall(r"-(\d+)\"", text))


def files(directory):
    """Returns a directory's files as (name, inode, mtime); rewriting a file changes its tuple."""
    found = set()
    with os.scandir(str(directory)) as entries:
        for entry in entries:
            try:
                state = entry.stat()
            except FileNotFoundError:  # the file has been renamed or deleted
                continue
            found.add((entry.name, state.st_ino, state.st_mtime_ns))
    return found


def unfinished(directory):
    """Returns the files that are temporary, or belong to a checkpoint newer than `newest`."""
    good, found = newest(directory), files(directory)
    numbers = {each: re.search(r"ckpt-(\d+)", each[0]) for each in found}
    return {
        each
        for each, number in numbers.items()
        if re.search("te?mp", each[0]) or (number and int(number.group(1)) > good)
    }


def kill_in_a_save(life, directory, moments, number=signal.SIGKILL):
    """Kills a process while it writes a checkpoint.

    The process is paused shortly after files of a checkpoint have appeared. If the checkpoint is
    still unfinished, the process gets the signal `number`. Otherwise, the process continues until
    its next save.

    Returns:
        Whether the process was still alive when it was killed.
    """
    before, stop = unfinished(directory), time.monotonic() + SECONDS
    longest = A_MOMENT
    while life.is_alive():
        unchanged = files(directory)
        while files(directory) <= unchanged and life.is_alive():
            if time.monotonic() > stop:
                raise RuntimeError(f"no checkpoint was begun in {SECONDS} s")
            life.wait_for(0.0002)  # this also empties the process's pipe, which must not fill up
        life.wait_for(moments.uniform(0, longest))
        life.pause()
        if unfinished(directory) - before:
            break
        life.resume()
        longest /= 2  # the process was paused too late, after the save
    return life.kill(number)
