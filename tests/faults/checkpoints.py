"""The files of checkpoints, seen from outside: what is whole, what is being written."""

import os
import pathlib
import re
import time

from tests.faults.lives import SECONDS

A_MOMENT = 0.01  # seconds: about what it takes to write a checkpoint here


def newest(directory):
    """Returns the number of the newest checkpoint that the file "checkpoint" tells of, or 0."""
    try:
        text = (pathlib.Path(directory) / "checkpoint").read_text()
    except FileNotFoundError:
        return 0
    return max(int(number) for number in re.findall(r"-(\d+)\"", text))


def unfinished(directory):
    """Returns the names of files that are of no such checkpoint, nor older than it."""
    good, names = newest(directory), set(os.listdir(str(directory)))
    numbers = {name: re.search(r"ckpt-(\d+)", name) for name in names}
    return {
        name
        for name, number in numbers.items()
        if re.search("te?mp", name) or (number and int(number.group(1)) > good)
    }


def wait_for_a_write(directory, moments):
    """Waits until files of one more checkpoint are there, and a random moment more."""
    before = set(os.listdir(str(directory)))
    stop = time.monotonic() + SECONDS
    while set(os.listdir(str(directory))) <= before:
        if time.monotonic() > stop:
            raise RuntimeError("no checkpoint in %d s" % SECONDS)
        time.sleep(0.0002)
    time.sleep(moments.triangular(0, A_MOMENT, 0))
