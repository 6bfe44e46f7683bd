"""Runs a command in a child process, and finds what a hostile file must not achieve."""

import contextlib
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from typing import NamedTuple

SECONDS, MEBIBYTES = 10, 500  # of a command, beyond the import of TensorFlow
KILLED_AFTER = 90  # seconds on the clock, because the machine may be busy, and a FIFO would hang
ADDRESS_SPACE = 3 << 30  # bytes beyond that of this process
LONGEST_LINE = 4000


class Measured(NamedTuple):
    """What a command did.

    Attributes:
      code: the exit code; if a signal ended the process, its negative number.
      seconds: the time of all processors, without the import of TensorFlow.
      mebibytes: the highest memory beyond that of the process from which it was forked.
      line: the last line of stderr, or of stdout.
      problems: what it must not do.
    """

    code: int
    seconds: float
    mebibytes: float
    line: str
    problems: list


def run(main, words, home, folder):
    """Runs `main(words)` in a fork of this process, which has TensorFlow imported.

    Args:
      main: the function of the command line.
      words: its arguments.
      home: the folder of everything that belongs to this program. Only `folder` may change, and if
        the command refuses the file, not even this.
      folder: the working folder, which is made and removed.
    """
    os.makedirs(folder)
    before = listing(home)
    outputs = [os.path.join(home, name) for name in ("stdout", "stderr")]
    baseline = memory("self")
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        child(main, words, folder, outputs)
    status, usage, most = waited(pid)
    texts = []
    for each in outputs:
        with open(each, encoding="utf-8", errors="replace", newline="") as file:
            texts.append(file.read())
        os.remove(each)
    killed = os.WIFSIGNALED(status)
    code = -os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
    seconds, mebibytes = usage.ru_utime + usage.ru_stime, most - baseline
    changes = sorted(set(listing(home)) ^ set(before))
    shutil.rmtree(folder)
    lines = "".join(reversed(texts)).strip().splitlines() or [""]
    line = texts[1].strip().splitlines()[-1:] or lines[-1:]
    problems = list(_problems(code, seconds, mebibytes, texts, changes))
    return Measured(code, seconds, mebibytes, line[0], problems)


def _problems(code, seconds, mebibytes, texts, changes):
    lines = texts[1].splitlines()
    if code < 0:
        yield f"ended by {signal.Signals(-code).name}"
    error = "".join(lines[-1:])
    # Of deeply nested literals, the parser of old Pythons says "MemoryError" and needs none.
    if re.search("MemoryError|llocate|bad_alloc", error) and not re.search(
        "The name map|not a state file: MemoryError", error
    ):
        yield "memory without a bound"
    if seconds > SECONDS:
        yield f"{seconds:.0f} s"
    if mebibytes > MEBIBYTES:
        yield f"{mebibytes:.0f} MiB"
    if any("Traceback" in each for each in lines):
        yield "a traceback"
    elif code == 2 and (len(lines) != 1 or not lines[0].startswith("legacy-opt ")):
        yield f"{len(lines)} lines instead of one"
    elif code not in (0, 1, 2) and code > 0:
        yield f"exit code {code}"
    if any(not each.isprintable() for text in texts for each in text.split("\n")):
        yield "characters that are not printable"
    if any(len(each) > LONGEST_LINE for each in lines):
        yield f"a line of {max(map(len, lines))} characters"
    inside = [each for each in changes if each[0].startswith("work")]
    if len(inside) < len(changes) or (code == 2 and inside):
        yield "written: " + ", ".join(sorted({each[0] for each in changes}))[:200]


def listing(home):
    """Returns the files of a folder: triples of their path, size and time of their last change."""
    found = []
    for folder, folders, files in os.walk(home):
        for name in folders + files:
            path = os.path.join(folder, name)
            facts = os.lstat(path)
            is_folder = name in folders
            time_and_size = () if is_folder else (facts.st_size, facts.st_mtime_ns)
            found.append((os.path.relpath(path, home), *time_and_size))
    return [each for each in found if "__pycache__" not in each[0]]


def memory(process, kind="RssAnon"):
    """Returns the memory of a process in MiB, without pages of files such as libraries."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/status") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024
    return 0


def child(main, words, folder, outputs):
    """Runs the command in this process, and ends it."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        sys.path.insert(0, folder)
        for number, path in enumerate(outputs, start=1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        limit = int(memory("self", "VmSize") * (1 << 20)) + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 2, SECONDS + 5))
        code = main(words)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def waited(pid):
    """Waits for a process; returns its status, its `resource.struct_rusage` and highest memory."""
    stop, most = time.monotonic() + KILLED_AFTER, 0
    while True:
        most = max(most, memory(pid))
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage, most
        if time.monotonic() > stop:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.01)
