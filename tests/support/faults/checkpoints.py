"""The files of checkpoints, seen from outside: what is whole, what is being written."""

import os
import pathlib
import re
import time

from tests.support.faults.lives import SECONDS

A_MOMENT = 0.01  # seconds: no checkpoint here takes longer to write, on an idle machine


def newest(directory):
    """Returns the number of the newest checkpoint that the file "checkpoint" tells of, or 0."""
    try:
        text = (pathlib.Path(directory) / "checkpoint").read_text()
    except FileNotFoundError:
        return 0
    return max(int(number) for number in re.findall(r"-(\d+)\"", text))


def files(directory):
    """Returns what is in a directory, as tuples of the name and what a new writing changes."""
    found = set()
    with os.scandir(str(directory)) as entries:
        for entry in entries:
            try:
                state = entry.stat()
            except FileNotFoundError:  # renamed or deleted meanwhile
                continue
            found.add((entry.name, state.st_ino, state.st_mtime_ns))
    return found


def unfinished(directory):
    """Returns those `files` that are of no such checkpoint as `newest`, nor older than it."""
    good, found = newest(directory), files(directory)
    numbers = {each: re.search(r"ckpt-(\d+)", each[0]) for each in found}
    return {
        each
        for each, number in numbers.items()
        if re.search("te?mp", each[0]) or (number and int(number.group(1)) > good)
    }


def kill_in_a_save(life, directory, moments):
    """Kills a process at a random moment of a save, which is not left to luck.

    When files of a checkpoint appear the process is stopped a moment later. If the checkpoint is
    not finished by then it is killed as it stands; else it goes on, to its next save.

    Returns:
        Whether the process was alive until then.
    """
    before, stop = unfinished(directory), time.monotonic() + SECONDS
    longest = A_MOMENT
    while life.is_alive():
        known = files(directory)
        while files(directory) <= known and life.is_alive():
            if time.monotonic() > stop:
                raise RuntimeError(f"no checkpoint to kill in {SECONDS} s")
            life.hear(0.0002)  # which keeps its pipe from filling up
        life.hear(moments.uniform(0, longest))
        life.pause()
        if unfinished(directory) - before:
            break
        life.go_on()
        longest /= 2  # it was too late
    return life.kill()
