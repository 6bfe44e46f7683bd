"""Processes to be killed: forked from one that has imported TensorFlow, and heard through a pipe.

A start of TensorFlow costs seconds, a fork nothing. What a forked process has from the other one
are imported modules: the other never makes a graph, a Session or a server, so whatever a process
knows of the training it has read from a checkpoint. What forks share, and new processes do not (the
seed of Python's hashes, say), a `command` does not share either.
"""

import json
import os
import select
import signal
import sys
import threading
import time
import traceback

SECONDS = 300  # for whatever is waited for; a busy machine may take its time

# Held open for writing by the process that forks, alone: its end is read by all others.
_LIFELINE = os.pipe()


class Life:
    """One process, from its start to its end, however that comes; gone when `with` ends.

    Args:
        live: what it does; called in the new process with a function that sends a message.
        command: a program and its arguments, which shall do that in `live`'s place: a new Python,
            with one more argument, the file number that messages go to.

    Attributes:
        pid: the process.
        started: the time of its start.
        messages: what it has sent so far, dicts with the keys "event" and "seconds" since the
            start, and others.
    """

    def __init__(self, live, command=None):
        self.messages, self._text, self.status = [], b"", None
        self._pipe, write = os.pipe()
        sys.stdout.flush()
        self.started = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            try:
                if command:
                    os.set_inheritable(write, True)
                    os.execv(command[0], command + [str(write)])
                _end_with_parent()
                live(sender(write))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(1)
        os.close(write)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._pipe is not None:
            self.kill()

    def hear(self, seconds, event=None):
        """Waits until a message of that event comes from now on, or the process ends.

        Messages that come together with it are taken, too: what is asked for next is later.

        Returns:
            The message; None if the time is over or the process has ended.
        """
        stop = time.monotonic() + seconds
        while True:
            known = len(self.messages)
            if not select.select([self._pipe], [], [], max(0, stop - time.monotonic()))[0]:
                return None
            if not self._read():
                return None
            for message in self.messages[known:]:
                if message["event"] == event:
                    return message

    def need(self, event):
        """Does what `hear` does; that the message does not come is an error."""
        message = self.hear(SECONDS, event)
        if message is None:
            raise RuntimeError(f"no {event!r}, but {self.events[-20:]}")
        return message

    @property
    def events(self):
        """The names of the messages."""
        return [message["event"] for message in self.messages]

    def last(self, event):
        """Returns the last message of that event, or None."""
        found = [message for message in self.messages if message["event"] == event]
        return found[-1] if found else None

    def ended(self):
        """Waits for the end of the process; returns whether it was a good one."""
        self.hear(SECONDS)
        self.kill()
        return self.status == 0

    def is_alive(self):
        """Whether the process has not ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def pause(self):
        """Stops the process where it is; when this returns it stands still, or has ended."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self):
        """Ends the pause."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self):
        """Ends the process with SIGKILL, wherever it is, and takes what it has still sent.

        Returns:
            Whether it was alive.
        """
        os.kill(self.pid, signal.SIGKILL)  # it is not reaped yet: the number is its own
        _, self.status = os.waitpid(self.pid, 0)
        while self._read():
            pass
        os.close(self._pipe)
        self._pipe = None
        return os.WIFSIGNALED(self.status)

    def _read(self):
        """Takes what is in the pipe; returns whether there was anything."""
        text = os.read(self._pipe, 1 << 16)
        *lines, self._text = (self._text + text).split(b"\n")
        for line in lines:
            message = json.loads(line.decode())
            message["seconds"] = time.monotonic() - self.started
            self.messages.append(message)
        return bool(text)


def sender(file):
    """Returns the function that sends messages to a pipe: send("saved", batch=20)."""

    def send(event, **values):
        os.write(file, json.dumps(dict(values, event=event)).encode() + b"\n")

    return send


def _end_with_parent():
    """Ends this process as soon as the one that forked it is gone, however it ended."""
    os.close(_LIFELINE[1])

    def wait():
        os.read(_LIFELINE[0], 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
