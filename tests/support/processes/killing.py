"""Kills processes at each change of the files in a folder."""

import pathlib

from tests.support.processes import programs

# The processes are forked before TensorFlow runs an operation, because its threads would be missing
# in a fork. Changes inside hidden folders do not count.
PROGRAM = """
import itertools, os, shutil, signal, sys
import numpy as np
import tensorflow as tf
home, code = sys.argv[1:]
exec(code)  # defines write(folder, number)

def dying(change, left):
    def changing(*paths, **options):
        if "/." not in os.path.dirname(str(paths[-1])):
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
        return change(*paths, **options)
    return changing

def status(folder, number, instant=None):
    if os.fork():
        return os.wait()[1]
    left = [instant]
    for place in (os, tf.io.gfile) if instant is not None else ():
        for name in {"replace", "rename", "remove"} & set(dir(place)):
            setattr(place, name, dying(getattr(place, name), left))
    failed = 1
    try:
        write(folder, number)
        failed = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(failed)

old = os.path.join(home, "old")
os.mkdir(old)
assert status(old, 1) == 0
for instant in itertools.count():
    killed, again = (os.path.join(home, kind, str(instant)) for kind in ("killed", "again"))
    shutil.copytree(old, killed)
    ended = status(killed, 2, instant)
    if ended == 0:
        break
    assert ended == signal.SIGKILL, ended
    shutil.copytree(killed, again)
    assert status(again, 2) == 0
"""


def folders_after_kills(code, home):
    """Kills processes that replace files, at each change of the files.

    Args:
      code: Python code that defines a function `write(folder, number)`. The files contain the
        number 1 before, and 2 afterwards.
      home: a new folder.

    Returns:
      Two lists of folders: after each kill, the last one after a process that was not killed; and
      after each kill and another process that was not killed.
    """
    done = programs.run("-c", PROGRAM, home, code, seconds=300)
    assert done.returncode == 0, done.stderr
    kinds = (pathlib.Path(str(home), kind) for kind in ("killed", "again"))
    return [sorted(kind.iterdir(), key=lambda path: int(path.name)) for kind in kinds]
