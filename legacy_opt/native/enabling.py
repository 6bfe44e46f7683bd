"""`enable`: enables native kernels in this process."""

from __future__ import annotations

import functools
from typing import Callable, Optional

from legacy_opt.native import settings
from legacy_opt.native.runtime import cache, tensorflow_operations
from legacy_opt.native.updates import kernel_choice
from legacy_opt.programs.program import UnsupportedError


def enable(
    require: bool = False, target: Optional[str] = None, by_name: bool = False
) -> Callable[[], None]:
    """Enables compiled kernels in this process, for optimizers whose attribute `native` is None.

    A parameter server must call this function before it creates its `tf.train.Server`, and needs
    the kernels in a folder of its machine (see `legacy-opt docs native`). The same holds for a
    process that loads a graph with kernels.

    Args:
      require: whether an update without a kernel raises an error. By default, such an update runs
        as TensorFlow operations, with a `NativeKernelWarning`. If this process cannot run any
        kernel, this call itself raises the error or warns.
      target: the target of the program's sessions, for example ``server.target``. Pass the target
        if variables are on parameter servers. While the graph is built, sessions with this target
        check whether the servers have the kernels. Without a target, variables on parameter servers
        are updated without kernels.
      by_name: whether kernels in a Session find small resource variables by their names. A step
        with hundreds of such variables then takes less time, because TensorFlow does not run an
        operation per variable and slot to get their handles. Do not change the attribute
        ``shared_name`` of the variables in the finished graph.

    Returns:
      A function that undoes this call. Undo several calls in the reverse order.

    Raises:
      ValueError: kernels are required, and this process cannot run any.
    """
    setting = "require" if require else "auto"
    try:
        tensorflow_operations.load()
        cache.check_supply()
    except UnsupportedError as error:
        text = f"this process cannot run native kernels: {str(error).rstrip('.')}"
        if "build-kernels" not in text:
            text += ". Once that is mended, run `legacy-opt build-kernels`"
        kernel_choice.go_on_without(text, setting)
    before = settings.current()  # options of earlier calls stay
    new = settings.Settings(setting, target or before.target, by_name or before.by_name)
    settings.change(new)
    return functools.partial(settings.change, before)
