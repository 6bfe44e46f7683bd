"""Processes that tests kill, and that send messages to the test through a pipe.

Most processes are forked after the import of TensorFlow, because the import takes seconds and a
fork almost no time. The parent never creates a Session or a server; it may create a graph, which
has no state. So a forked process gets its whole training state from a checkpoint. Unlike new
processes, forked processes share state that does not belong to the training, such as the seed of
Python's hashes. If a `Life` has a `command`, it is a new process.
"""

import json
import os
import select
import signal
import sys
import threading
import time
import traceback

SECONDS = 300  # the timeout for events that must happen, even on a busy machine

# Only the parent keeps the writing end of this pipe open. When the parent exits, the pipe ends. The
# forked children wait for the end of the pipe, and then exit, too.
_LIFELINE = os.pipe()


class Life:
    """A child process; the end of the `with` block kills the process if it still exists.

    Args:
        live: a function that the child process calls. Its argument is a function that sends
            messages.
        command: a program and its arguments to run in a new process instead of `live`. The file
            descriptor for messages is appended to the arguments.

    Attributes:
        pid: the process id.
        started: the time of its start.
        messages: the received messages. Each message is a dict with the "event", the "seconds"
            since the start of the process, and the values that were sent.
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
            except SystemExit as exit_:
                os._exit(exit_.code)
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

    def wait_for(self, seconds, event=None):
        """Waits for a new message with this event; if `event` is None, for the end of the process.

        Several messages may arrive at once. Then the call receives all of them, but returns only
        the first message with the event. The next call waits for later messages.

        Returns:
            The message; None after a timeout or if the process has ended.
        """
        stop = time.monotonic() + seconds
        while True:
            received = len(self.messages)
            if not select.select([self._pipe], [], [], max(0, stop - time.monotonic()))[0]:
                return None
            if not self._read():
                return None
            for message in self.messages[received:]:
                if message["event"] == event:
                    return message

    def expect(self, event):
        """Waits for a message, like `wait_for`; raises an error if the message does not arrive."""
        message = self.wait_for(SECONDS, event)
        if message is None:
            raise RuntimeError(f"no message {event!r}; the last messages: {self.events[-20:]}")
        return message

    @property
    def events(self):
        """The events of the messages."""
        return [message["event"] for message in self.messages]

    def last(self, event):
        """Returns the last message with this event, or None."""
        found = [message for message in self.messages if message["event"] == event]
        return found[-1] if found else None

    def ended(self):
        """Waits for the end of the process; returns whether its exit code was 0."""
        self.wait_for(SECONDS)
        self.kill()
        return self.status == 0

    def is_alive(self):
        """Returns whether the process has not ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def pause(self):
        """Sends SIGSTOP and waits until the process has stopped, or ended."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self):
        """Sends SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self, number=signal.SIGKILL):
        """Sends a signal that ends the process, and receives the messages still in the pipe.

        Returns:
            Whether the process was alive.
        """
        # After SIGTERM, the exit code tells nothing: a SystemExit that a handler raises between two
        # lines of TensorFlow may become another error.
        alive = self.is_alive()
        # No other process can have this pid, because waitpid has not been called for it.
        os.kill(self.pid, number)
        os.kill(self.pid, signal.SIGCONT)  # a paused process gets no other signal than SIGKILL
        _, self.status = os.waitpid(self.pid, 0)
        while self._read():
            pass
        os.close(self._pipe)
        self._pipe = None
        return alive

    def _read(self):
        """Receives the messages in the pipe; returns False at the end of the pipe."""
        text = os.read(self._pipe, 1 << 16)
        *lines, self._text = (self._text + text).split(b"\n")
        for line in lines:
            message = json.loads(line.decode())
            message["seconds"] = time.monotonic() - self.started
            self.messages.append(message)
        return bool(text)


def sender(file):
    """Returns a function that writes messages to a pipe, for example send("saved", batch=20)."""

    def send(event, **values):
        os.write(file, json.dumps(dict(values, event=event)).encode() + b"\n")

    return send


def exit_on_sigterm():
    """Makes SIGTERM raise SystemExit in this process, as many programs do."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def _end_with_parent():
    """Starts a thread that ends this process as soon as its parent has ended."""
    os.close(_LIFELINE[1])

    def wait():
        os.read(_LIFELINE[0], 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
