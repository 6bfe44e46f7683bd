"""The global step that a wrapper advances for the optimizers inside, which are given none."""

import contextlib
import threading

_local = threading.local()


@contextlib.contextmanager
def advancing(global_step):
    """Tells optimizers that apply gradients meanwhile which step will be advanced afterwards.

    Args:
      global_step: the variable; None leaves it at what an outer wrapper tells.
    """
    outer = advanced_by_wrapper()
    _local.step = outer if global_step is None else global_step
    try:
        yield
    finally:
        _local.step = outer


def advanced_by_wrapper():
    """Returns the step that a wrapper around the caller will advance, or None."""
    return getattr(_local, "step", None)
